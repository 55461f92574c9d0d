"""Titles, captions and footnotes, which state conditions, statistics and warnings."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pandas as pd

from dynbatch.harness.contracts.corpus import OWN_DATA
from dynbatch.harness.planning.kinds import SystemFile
from dynbatch.harness.planning.yaml_files import list_formats, read_choices
from dynbatch.harness.records.numbers import NOT_MEASURED
from dynbatch.harness.records.stats import INTERVAL, RANGE, name_interval
from dynbatch.harness.records.tidy import SEED
from dynbatch.plots.declaration import BEST_BASELINE, TableDeclaration
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import DAGGER, EN_DASH, Table, is_range

SIZES = ("batch_size", "hidden_size", "dataset.options.n_leaves", "dataset.options.vocab_modulo")
MODES = {"train": "training", "infer": "inference"}
ONE_ROUND = "ratios within one round, so no interval"
ENDS = {RANGE: "range over rounds", INTERVAL: "95% interval of the median"}
LEARNING_KEYS = ["learning.variant", "learning.fallback", "learning.trials"]
QUANTITY_NOTES = {
    "peak_memory_mib": "MiB: peak memory above that before setup; DyNet's includes its import.",
    "preparing_s": "Setup: once per process; compiles, folds, loads; may reuse compiled code.",
    "copied_kb": "Copied: bytes per mini-batch that are moved only to gather operands.",
    "construction_s": "Graph construction includes scheduling; DyNet schedules as it computes.",
    "throughput over ceiling": "Matmul bound: only the workload's matmuls, each parameter once"
    " for all vertices, at their fastest; shares are of rounds that measured it. More than 100%: a"
    " system omits matmuls or uses another library.",
}
WARNING_NOTES = {
    "dynet_without_blas": "ratios against DyNet's wheel, which has no BLAS; make dynet-native"
    " builds DyNet with one",
}
FRAMEWORK, UNSEEN = "framework", "unseen_slowdown"  # kind of baselines; a quantity


def build_title(experiment: Experiment) -> str:
    """Return the title in one line, with a suffix if a dataset is generated or the user's own."""
    datasets = {*experiment.rows.dataset.dropna(), *experiment.counts.dataset.dropna()}
    contents = read_choices("dataset", experiment.conf_dir)
    stand_ins = {name: content.get("fallback") for name, content in contents.items()}
    # A generated dataset is the last one in a chain of fallbacks.
    synthetic = {name for name in stand_ins.values() if name and not stand_ins.get(name)}
    kinds = {"synthetic data": synthetic, OWN_DATA: list_formats(experiment.conf_dir)}
    named = [name for name, known in kinds.items() if not datasets.isdisjoint(known)]
    return experiment.declaration.title + (f" ({' and '.join(named)})" if named else "")


def describe_conditions(experiment: Experiment, axis: Collection[str] = ()) -> str:
    """Describe the conditions that all numbers share.

    Args:
        axis: keys that the table or figure varies, which are omitted.
    """
    rows = experiment.rows if len(experiment.rows) else experiment.counts
    parts = []
    for key in SIZES:
        values = set(rows[key].astype(str)) if key in rows and rows[key].notna().all() else set()
        if key not in axis and len(values) == 1 and values != {"0"}:  # 0: word ids as they are
            parts.append(f"{spell_key(key)} {values.pop()}")
    measured = experiment.measured
    if len(measured):
        modes = [text for mode, text in MODES.items() if mode in set(measured["mode"])]
        threads = measured.threads.iloc[0]
        n_threads = f"{threads} CPU thread" + ("" if threads == 1 else "s")
        parts += [" and ".join(modes), "float32", n_threads]
    parts.append(describe_processor(measured if len(measured) else experiment.counts))
    return ", ".join(part for part in parts if part)


def spell_key(key: str) -> str:
    """Return the printed name of a setting: "leaves" for dataset.options.n_leaves."""
    return key.rpartition(".")[2].removeprefix("n_").replace("_", " ")


def describe_processor(rows: pd.DataFrame) -> str:
    """Return the name of the GPU or CPU that was used; empty if no row has a record."""
    recorded = rows[rows.trial_id.notna()]
    if not len(recorded):
        return ""
    first = recorded.iloc[0]
    if first.get("device") != "cuda":
        return shorten_cpu(str(first.cpu))
    gpus = json.loads(first.group_facts).get("gpus") or [["CUDA"]]
    return f"{', '.join(sorted({str(gpu[0]) for gpu in gpus}))} ({shorten_cpu(first.cpu)})"


def shorten_cpu(name: str) -> str:
    """Return a processor's name without "(R)", "(TM)", "CPU" and "Processor"."""
    return " ".join(re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b", " ", name).split())


def build_caption(experiment: Experiment, *sentences: str, axis: Collection[str] = ()) -> str:
    """Return the caption of a figure: its own sentences, then statistics and conditions."""
    conditions = describe_conditions(experiment, axis)
    return join_sentences(*sentences, describe_statistics(count_rounds(experiment)), conditions)


def join_sentences(*texts: str) -> str:
    """Return texts as sentences, each with a capital letter and a period."""
    return " ".join(f"{text[0].upper()}{text[1:].rstrip('.')}." for text in texts if text)


def count_rounds(experiment: Experiment) -> list[int]:
    """Count the rounds of each trial that has a number."""
    if not len(rows := experiment.rows):
        return []
    is_ok = (rows.status == "ok").groupby(rows.point)
    return list(is_ok.size()[is_ok.all()])


def describe_statistics(rounds: Collection[int]) -> str:
    """Describe the statistics of numbers and error bars in one line, by the rounds of each."""
    bars = f"; error bars: {describe_ends(rounds)}" if max(rounds, default=0) > 1 else ""
    return f"Median of {format_range(rounds)} interleaved rounds{bars}." if rounds else ""


def format_range(values: Collection[int]) -> str:
    """Format the range of numbers as "4" or "4 to 16"."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def describe_ends(rounds: Iterable[int]) -> str:
    kinds = {name_interval(n) for n in rounds}
    return " or ".join(text for ends, text in ENDS.items() if ends in kinds)


def build_notes(
    experiment: Experiment, systems: Sequence[str] = (), numbers: pd.DataFrame | None = None
) -> tuple[str, ...]:
    """Return the footnotes that tables of all kinds have.

    A declared note that begins with the label of a system is shown only with that system.

    Args:
        systems: those of the table; all if empty.
        numbers: those of the table; by default, the rounds of all trials are described.
    """
    rows, rounds = experiment.rows, count_rounds(experiment)
    if numbers is not None and len(rows):
        rounds = [int(n) for n in numbers.n_rounds[numbers.status == "ok"].dropna()]
    if systems:
        is_bound = rows.system.map(experiment.kinds) == "upper_bound"
        rows = rows[is_bound | rows.system.isin(systems)]
    shown = set(rows.system) if len(rows) else {system.name for system in experiment.systems}
    absent = [system.label for system in experiment.systems if system.name not in shown]
    starts = tuple(start for label in absent for start in (f"{label}:", f'"{label}"'))
    notes = [
        *describe_failures(experiment, rows, "system"),
        *describe_failures(experiment, experiment.counts, "policy"),
        describe_statistics(rounds).replace("error bars", "intervals"),
        *describe_counts(experiment.counts),
        *describe_learning(experiment),
        *(note for note in experiment.declaration.notes if not note.startswith(starts)),
    ]
    return tuple(dict.fromkeys(note for note in notes if note))


def build_only_table(
    experiment: Experiment,
    numbers: pd.DataFrame,
    cells: pd.DataFrame,
    *,
    first: str = "",
    last: str = "",
    is_text: bool = False,
) -> list[Table]:
    notes = filter(None, (first, describe_warnings(numbers), *build_notes(experiment), last))
    stem, title = experiment.declaration.stems[0], build_title(experiment)
    return [Table(stem, title, numbers, cells, tuple(notes), is_text)]


def describe_warnings(numbers: pd.DataFrame) -> str:
    """List the warnings that daggers indicate, each with its count of numbers."""
    columns = [numbers[name] for name in ("warnings", "speedup_warnings") if name in numbers]
    warnings = pd.concat([pd.Series(dtype=str), *columns]).fillna("")
    counts = warnings.str.split().explode().value_counts().sort_index()
    listed = ", ".join(f"{word} ({n})" for word, n in counts.items())
    if not listed:
        return ""
    meant = (f" {word}: {text}." for word, text in WARNING_NOTES.items() if word in counts)
    return f"{DAGGER} Warnings: {listed}; the CSV has those of each number.{''.join(meant)}"


def describe_failures(experiment: Experiment, data: pd.DataFrame, key: str) -> list[str]:
    """Return the reason for each status without a number, with the `key` that failed.

    Of reasons that differ only in their numbers, as of rounds or settings, the first is returned.
    """
    lines: dict[tuple[str, str, str], str] = {}
    for _, row in data[~data.status.isin(["ok", NOT_MEASURED])].iterrows():
        name, reason = experiment.label(row[key]), row.reason or "no reason given"
        reason = _REPEATED.sub("", reason)
        alike = name, row.status, _DIGITS.sub("", reason)
        lines.setdefault(alike, f"{name}: {row.status}: {reason}")
    return list(lines.values())


_REPEATED = re.compile(r"^as in round \d+: ")  # see dynbatch.harness.terminal.measurement
_DIGITS = re.compile(r"\d+")


def describe_counts(counts: pd.DataFrame) -> Iterator[str]:
    """Describe the instances of the counted mini-batches."""
    if len(counts):
        sizes, offset = counts.batch_size.unique(), pd.to_numeric(counts.offset).max()
        size = sizes[0] if len(sizes) == 1 else "B"
        start = f" from {offset:.0f} on" if offset > 0 else ""
        source = " and ".join(counts["split"].unique()) + start
        yield f"A mini-batch is the first {size} instances of {source}, in file order."
        if counts.n_following.any():
            yield f"Means are over {counts.n_following.max():.0f} mini-batches that follow."


def describe_learning(experiment: Experiment) -> Iterator[str]:
    """Describe the settings and seeds of learned policies, a line for each setting."""
    for data, mini_batch in ((experiment.rows, "the first"), (experiment.counts, "each")):
        learned = data[data.learn_s.notna()]
        learners = learned.policy.fillna(learned.system.map(experiment.label))
        groups = learned.assign(learner=learners).groupby(LEARNING_KEYS) if len(learned) else ()
        for (variant, fallback, n_trials), group in groups:
            names = ", ".join(sorted(group.learner.unique()))
            seeds = ", ".join(map(str, sorted(group[SEED].unique())))
            yield (
                f"{names}: Q-learning on {mini_batch} mini-batch, variant {variant}, fallback"
                f" {fallback}, at most {n_trials} trials, seeds {seeds}."
            )


def find_unplanned(experiment: Experiment, rows: pd.DataFrame) -> list[SystemFile]:
    """Return the baselines that run a model of these rows, but have no trial in them."""
    planned, models = set(rows.system), rows.model.unique()
    return [
        system
        for system in experiment.systems
        if system.kind == FRAMEWORK
        and system.name not in planned
        and any(map(system.can_run, models))
    ]


def build_footnotes(
    experiment: Experiment,
    declaration: TableDeclaration,
    numbers: pd.DataFrame,
    systems: Sequence[str],
    cells: pd.DataFrame,
) -> tuple[str, ...]:
    """Return the footnotes of a declared table, the most important first."""
    keys = {*declaration.rows, *declaration.columns}
    keys |= {key for setting in declaration.settings.values() for key in setting}
    conditions = describe_conditions(experiment, keys)
    sources = "; ".join(numbers.source.dropna().unique()) if "source" in numbers else ""
    has_gaps, epoch = (cells == EN_DASH).any(axis=None), declaration.epoch
    measured = set(numbers.get("setting", declaration.settings))
    unmeasured = "; ".join(name for name in declaration.settings if name not in measured)
    lacking = set(numbers.quantity[numbers.status == NOT_MEASURED])
    reasons = {name: reason for name, reason in declaration.unmeasured.items() if name in lacking}
    sizes = epoch if isinstance(epoch, Mapping) else {"": epoch}
    epochs = "; ".join(f"{name}: {size:,}".removeprefix(": ") for name, size in sizes.items())
    has_baseline = BEST_BASELINE in declaration.extra
    absent = find_unplanned(experiment, experiment.rows) if has_baseline else []
    unplanned = "; ".join(system.label for system in absent)
    is_as_range = numbers.apply(is_range, axis=1)
    notes = {
        f"Baselines that run the model, but have no trial at this scale: {unplanned}.": unplanned,
        "[n]: only n rounds so far, perhaps in other blocks: rank systems by speedup.": (
            True in set(numbers.is_partial)
        ),
        "A range in place of a number is its interval, wider than 5 %.": is_as_range.any(),
        f"Not measured: {unmeasured}.": unmeasured,
        f"Instances of an epoch, extrapolated from those measured: {epochs}.": epoch != 1,
        f"Paper: {sources}. Another machine and other code: compare ratios, not seconds.": sources,
        f"Conditions: {conditions}.": conditions,
        f"{EN_DASH} not planned at this scale, not published, or not applicable.": has_gaps,
    }
    return (
        *filter(None, (describe_warnings(numbers[~is_as_range]),)),
        *build_notes(experiment, systems, numbers[numbers.quantity != UNSEEN]),
        *(note for quantity, note in QUANTITY_NOTES.items() if quantity in set(numbers.quantity)),
        *(f"Not measured, {declaration.values[name]}: {reasons[name]}." for name in reasons),
        *(note for note, is_shown in notes.items() if is_shown),
        *describe_unseen(experiment, numbers[numbers.quantity == UNSEEN]),
    )


def describe_unseen(experiment: Experiment, numbers: pd.DataFrame) -> Iterator[str]:
    """Tell how much longer systems take for mini-batches that they have not run before."""
    if len(numbers):
        slowest = numbers.sort_values("value", kind="stable").iloc[-1]
        yield (
            "Timed mini-batches repeat; reordered copies, timed once, take"
            f" {numbers.value.median():.2f} times as long in the median of systems, at most"
            f" {slowest.value:.2f} times ({experiment.label(slowest.system)})."
        )
