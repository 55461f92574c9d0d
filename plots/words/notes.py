"""Titles, subtitles and footnotes: all that a reader must know to believe a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from harness.records.stats import INTERVAL, INTERVAL_ROUNDS, RANGE, ends_of
from plots.numbers.artefact import SPEEDUP, Artefact
from plots.numbers.ceiling import calibrations_of
from plots.numbers.table import DAGGER
from plots.words.count_notes import counting_notes, missing_count_notes
from plots.words.figure_text import FigureText

SIZE_WORDS = {
    "batch_size": "batch size {}",
    "hidden_size": "hidden size {}",
    "dataset.options.n_leaves": "{} leaves per tree",
    "dataset.options.vocab_modulo": "word ids modulo {}",
}
# How instances of each kind are called in a title.
INSTANCES = {
    "tree": "trees",
    "lattice": "lattices",
    "chain": "sentences",
    "sentence_pair": "sentence pairs",
    "parsed_sentence": "parsed sentences",
}
AS_THEY_ARE = "0"  # word ids modulo nothing
GRAPH_NOTE = (
    "Graph construction = construct + schedule, where a system tells them apart; a system that "
    "schedules while it computes (DyNet) has its scheduling in computation. Computation is all "
    "the rest of the epoch."
)
GRAPH_WORDS = ("construction", "computation")

Y_LABELS = {
    "epoch_s": "time per epoch (s)",
    "construction_s": "graph construction (s/epoch)",
    "throughput": "instances/s",
}


def title_of(artefact: Artefact) -> str:
    """The artefact's title; what was made from synthetic data says so."""
    kinds = [artefact.stand_ins[name] for name in artefact.datasets if name in artefact.stand_ins]
    *first, last = sorted({INSTANCES.get(kind, kind) for kind in kinds}) or [""]
    made_up = " and ".join([", ".join(first), last] if first else [last])
    return artefact.presentation.title + (f" (synthetic {made_up})" if made_up else "")


def subtitle_of(artefact: Artefact) -> str:
    """Paper's artefact, scale, sizes that every trial shares, threads, device and machine."""
    parts = [artefact.presentation.paper, f"{artefact.scale} scale"]
    datasets = artefact.datasets
    parts += [f"data set{'s' if len(datasets) > 1 else ''} {', '.join(datasets)}"] * bool(datasets)
    parts += [f"split {split}" for split in artefact.splits if split != "train"]
    for key, words in SIZE_WORDS.items():
        values = {str(point.settings[key]) for point in artefact.points if key in point.settings}
        values.update(artefact.listed(key, "") if artefact.sweeps else ())
        values -= {""}
        if key != artefact.presentation.axis and len(values) == 1 and values != {AS_THEY_ARE}:
            parts.append(words.format(values.pop()))
    records = artefact.records
    if records:
        modes = " and ".join(sorted({record.trial.mode for record in records}))
        threads = threads_words(records[0].trial.threads)
        parts.append(f"mode {modes}, float32, {threads}")
        parts.append(machine_words(artefact))
    elif cpus := {row.cpu for row in artefact.counted}:
        parts.append(f"1 CPU thread; {', '.join(sorted(cpus))}")
    return "; ".join(parts)


def threads_words(threads: int) -> str:
    return f"{threads} CPU thread" + ("" if threads == 1 else "s")


def machine_words(artefact: Artefact) -> str:
    """The processor that computed, in words."""
    machine, trial = artefact.records[0].machine, artefact.records[0].trial
    if trial.device == "cuda":
        names = sorted({gpu["name"] for gpu in machine.get("gpus") or ()})
        return f"{', '.join(names) or 'CUDA'} ({machine.get('cpu')})"
    return str(machine.get("cpu"))


def notes_of(artefact: Artefact, comparison: str | None = None) -> tuple[str, ...]:
    """Footnotes, most important first; `comparison` keeps those about one table's systems."""
    shown = (*systems_of(artefact, comparison), *calibrations_of(artefact))
    notes = [warnings_note(artefact, shown), *missing_notes(artefact, shown)]
    notes += missing_count_notes(artefact)
    notes += [epoch_note(artefact)] if artefact.presentation.epoch_words else []
    notes += [statistics_note(artefact, shown)] if artefact.points else []
    notes += counting_notes(artefact)
    if any(quantity.startswith(GRAPH_WORDS) for quantity in artefact.presentation.quantities):
        notes.append(GRAPH_NOTE)
    if artefact.presentation.axis:
        notes += variant_notes(artefact, comparison)
    notes += artefact.presentation.notes
    published = artefact.presentation.published
    if published:
        epoch = f"; epoch = {published.epoch}" if published.epoch else ""
        notes.append(
            f"Paper: {published.source}{epoch}. Another machine and other code: compare ratios and "
            "shapes, not seconds."
        )
    notes.append(versions_note(artefact, shown))
    return tuple(note for note in notes if note)


def systems_of(artefact: Artefact, comparison: str | None) -> tuple[str, ...]:
    """Systems of one comparison, or of all, in their order and once each."""
    groups = artefact.compare
    chosen = [groups[comparison]] if comparison else [*groups.values()]
    compared = [system for group in chosen for system in group]
    return tuple(dict.fromkeys(compared or [point.settings["system"] for point in artefact.points]))


def variant_notes(artefact: Artefact, comparison: str | None) -> list[str]:
    """Which systems are shown as one, once each."""
    groups = [comparison] if comparison else [*artefact.compare]
    notes: dict[str, None] = {}
    for family in (one for group in groups for one in artefact.families(group)):
        if len(family.members) > 1:
            labels = " and ".join(artefact.label(member) for member in family.members)
            fastest = "faster" if len(family.members) == 2 else "fastest"
            notes[
                f"{artefact.label(family.name)}: the {fastest} of {labels} at each point; the CSV"
                " names it."
            ] = None
    return list(notes)


def epoch_note(artefact: Artefact) -> str:
    """Of what, and from how much, an epoch was extrapolated."""
    n_batches = {r.n_mini_batches for r in artefact.records if r.n_mini_batches}
    n_instances = {r.n_instances for r in artefact.records if r.n_instances}
    text = f"Epoch = {artefact.presentation.epoch_words}"
    if not n_batches:
        return text + "."
    return (
        f"{text}, extrapolated from {span(n_batches)} measured mini-batches "
        f"({span(n_instances)} instances) per trial."
    )


def span(values: Iterable[int]) -> str:
    """Spell "4", or "4 to 16"."""
    low, high = min(values := list(values)), max(values)
    return str(low) if low == high else f"{low} to {high}"


def statistics_note(artefact: Artefact, shown: Collection[str] = ()) -> str:
    """What the numbers of some systems, else of all, are, and what the ends around them are."""
    points = [p for p in artefact.points if not shown or p.settings["system"] in shown]
    rounds = [len(point.records) for point in points if point.status == "ok"]
    rounds = rounds or [len(point.records) for point in points] or [0]
    if max(rounds) < 2:
        return "One round in a fresh process per trial: no range."
    fewer = (
        f" Fewer than {max(rounds)}: peers that were called off, far behind the fastest or at a"
        " limit."
        if any(point.is_called_off for point in points)
        else ""
    )
    return (
        f"Median of {span(rounds)} rounds, each in a fresh process, rounds interleaved over all"
        f" systems, whose order is drawn anew in each; error bars, brackets and CSV:"
        f" {ends_words(rounds)}. Ratios: of the two systems in each round, then over rounds.{fewer}"
    )


def ends_words(rounds: Iterable[int]) -> str:
    """What the ends around numbers of so many rounds are; a number of one round has none."""
    found = sorted({ends_of(n) for n in rounds} - {""}, reverse=True)
    words = {
        RANGE: "the range over rounds (smallest to largest)",
        INTERVAL: "95 % interval of the median, between rounds in order",
    }
    few = f", where there are fewer than {INTERVAL_ROUNDS}" if len(found) > 1 else ""
    return "; ".join(words[name] + few * (name == RANGE) for name in found)


def warnings_note(artefact: Artefact, shown: Iterable[str]) -> str:
    """Which warnings the numbers with a dagger carry."""
    presentation = artefact.presentation
    has_ratios = presentation.compares_peers or any(
        quantity.endswith(SPEEDUP) for quantity in presentation.quantities
    )
    names = Counter(
        name
        for point in artefact.points
        if point.settings["system"] in set(shown) and point.status == "ok"
        for name in (point.ratio_warnings if has_ratios else point.warnings)
    )
    if not names:
        return ""
    # counted in trials
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(names.items()))
    daggers = presentation.is_table or presentation.show.get("daggers")
    mark = f"{DAGGER} M" if daggers else "Hollow marks: m"
    return f"{mark}easured with warnings: {listed}; the CSV names them for every number."


def missing_notes(artefact: Artefact, shown: Iterable[str]) -> list[str]:
    """Why numbers are missing, once per system and reason."""
    reasons: dict[str, None] = {}
    for point in artefact.points:
        system = point.settings["system"]
        if system not in set(shown):
            continue
        for record in point.records:
            if record is not None and record.status != "ok":
                label = artefact.label(system)
                reasons[f"{label}: {record.status}: {record.reason or 'no reason given'}"] = None
    return list(reasons)


def versions_note(artefact: Artefact, shown: Iterable[str]) -> str:
    """Day, and the versions of everything that measured."""
    records = [r for r in artefact.records if r.trial.system in set(shown)]
    if not records:
        return ""
    versions: dict[str, set[str]] = {}
    for name, text in (pair for record in records for pair in record.versions.items()):
        versions.setdefault(name, set()).add(text)
    days = sorted({record.started_at[:10] for record in records})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"Measured {when}. " + ", ".join(
        f"{name} {'/'.join(sorted(texts))}" for name, texts in sorted(versions.items())
    )


def text_of(artefact: Artefact, y_label: str) -> FigureText:
    """The words around an artefact's panels."""
    return FigureText(
        title=title_of(artefact),
        subtitle=subtitle_of(artefact),
        x_label=artefact.presentation.axis_label,
        y_label=y_label,
        notes=notes_of(artefact),
    )
