"""What can be drawn from records that were measured elsewhere: which artefacts, at which scale.

Scale, device, threads and data sets are those of the records, never of the machine that draws.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.planning.artefacts import (
    Choices,
    PlannedTrial,
    choices_from,
    is_here,
    plan_artefact,
    plan_counts,
)
from harness.planning.compose import Composer
from harness.planning.grid import SCALES, experiment_names, read_experiment
from harness.planning.sweep import Sweep
from harness.records.record import Record
from harness.records.stored import Held, held_in
from plots.numbers.presentation import read_presentation
from plots.numbers.sources import Elsewhere

Setting = tuple[str, int]  # device and threads
Name = tuple[str, int]  # of a trial and its round, or of a count and 0
ANY_SETTING: Setting = ("cpu", 1)  # of counts, which tell neither


def setting_of(record: Record) -> Setting:
    """On what a record was measured."""
    return record.trial.device, record.trial.threads


@dataclass(frozen=True, slots=True)
class Part:
    """One artefact's plan, and what of it the records hold.

    seen: records and counts that it shows. n_missing: rounds and counts that it lacks.
    left_out: why it cannot be drawn on this machine; None where it can.
    """

    trials: tuple[PlannedTrial, ...]
    sweeps: tuple[Sweep, ...]
    seen: frozenset[Name]
    n_missing: int
    left_out: str | None


@dataclass(frozen=True, slots=True)
class Drawable:
    """Artefacts of which the records hold something, under one set of choices.

    source: what the records answer, with what it was already asked.
    """

    place: Path
    choices: Choices
    held: Held
    source: Elsewhere
    parts: Mapping[str, Part]

    @property
    def drawn(self) -> dict[str, Part]:
        """Those that can be drawn on this machine."""
        return {name: part for name, part in self.parts.items() if part.left_out is None}

    @property
    def seen(self) -> frozenset[Name]:
        """Records and counts that an artefact asks for."""
        return frozenset().union(*(part.seen for part in self.parts.values()))

    @property
    def unused(self) -> list[str]:
        """Records and counts that no artefact asks for, in words."""
        seen = self.seen
        records = [r for r in self.held.records if (r.trial_id, r.trial.round) not in seen]
        n_counts = sum((row.count_id, 0) not in seen for row in self.held.counts)
        by_setting = sorted(Counter(map(setting_of, records)).items())
        words = [f"{n} of device={d} threads={t}" for (d, t), n in by_setting]
        return [*words, *([f"{n_counts} counts"] if n_counts else [])]

    @property
    def left_out(self) -> list[str]:
        """What cannot be drawn on this machine, and why."""
        parts = self.parts.items()
        return [f"{name} is left out, since {p.left_out}" for name, p in parts if p.left_out]

    @property
    def lines(self) -> list[str]:
        """In words: what is drawn, what is missing, what is left out, and why."""
        c, n_shown = self.choices, len({one for part in self.drawn.values() for one in part.seen})
        missing = [f"{name} ({p.n_missing})" for name, p in self.drawn.items() if p.n_missing]
        lines = [
            f"{self.place}: {len(self.drawn)} artefacts are drawn from {n_shown} records, with"
            f" scale={c.scale} device={c.device} threads={c.threads}"
        ]
        if missing:
            lines.append(f"without a record, shown as missing: {', '.join(missing)}")
        if self.unused:
            lines.append(
                f"records that are not drawn: {', '.join(self.unused)}; another scale=, device= or"
                " threads= may ask for them"
            )
        return [*lines, *self.left_out]


def held_at(place: Path) -> Held:
    """Read the records to be drawn; raises RecordError where there are none."""
    if not place.exists():
        raise RecordError(
            f"records={place} does not exist; name a file or folder of bench-collect --pack"
        )
    held = held_in([place])
    if not held.records and not held.counts:
        raise RecordError(f"records={place} holds no records; name one of bench-collect --pack")
    return held


def drawable(
    config: Mapping[str, Any], environment: Mapping[str, str], name: str | None = None
) -> Drawable:
    """Plan what the records of `config["records"]` can draw; keys as in `snakemake --config`.

    What is not said (scale, device, threads) is chosen so that most records are drawn. name: of the
    only artefact that is asked for. Raises RecordError where no artefact asks for any record.
    """
    place = Path(config["records"])
    held = held_at(place)
    candidates = [
        choices_from({**config, **said}, environment, _datasets(held))
        for said in _candidates(held, config)
    ]
    composer = Composer(candidates[0].conf_dir)
    source = Elsewhere(held, composer)
    best: Drawable | None = None
    for choices in candidates:
        found = Drawable(place, choices, held, source, _parts(source, choices, composer, name))
        if best is None or len(found.seen) > len(best.seen):
            best = found
        if not best.unused:
            break
    assert best is not None  # there is a scale, and a setting
    if not best.drawn:
        raise RecordError(
            f"records={place} holds nothing that {name or 'any artefact'} can be drawn from;"
            f" {'; '.join([*best.left_out, 'look into it with bench-collect'])}, or give another"
            " scale=, device= or threads="
        )
    return best


def _datasets(held: Held) -> frozenset[str]:
    named = {record.trial.dataset for record in held.records}
    return frozenset(named | {row.dataset for row in held.counts})


def _candidates(held: Held, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every scale under every device and number of threads of the records, most frequent first."""
    frequent = Counter(map(setting_of, held.records)).most_common()
    settings = [setting for setting, _ in frequent] or [ANY_SETTING]
    device, threads = config.get("device"), config.get("threads")
    said = [(str(device or d), int(threads or t)) for d, t in settings]
    scales = [str(config["scale"])] if config.get("scale") else SCALES
    for scale, (d, t) in itertools.product(scales, dict.fromkeys(said)):
        yield {"scale": scale, "device": d, "threads": t}


def _parts(
    source: Elsewhere, choices: Choices, composer: Composer, name: str | None
) -> dict[str, Part]:
    """Every artefact of the scale, or the one with the name, of which something is held."""
    parts: dict[str, Part] = {}
    for one in (name,) if name else experiment_names(choices.conf_dir):
        if choices.scale in read_experiment(one, choices.conf_dir)["scales"]:
            part = _part(one, source, choices, composer)
            parts |= {one: part} if part.seen else {}
    return parts


def _part(name: str, source: Elsewhere, choices: Choices, composer: Composer) -> Part:
    trials, sweeps = plan_artefact(name, choices, composer), plan_counts(name, choices)
    unique = list({trial.trial_id: trial for trial in trials}.values())
    rounds = [record for records in source.rounds(unique) for record in records]
    found = [record for record in rounds if record is not None]
    seen = {(record.trial_id, record.trial.round) for record in found}
    seen |= {(row.count_id, 0) for sweep in sweeps for row in source.counts(sweep)}
    n_missing_counts = sum(source.n_missing_counts(sweep) for sweep in sweeps)
    left_out = None
    if read_presentation(name, choices.conf_dir).draws_mini_batch:
        left_out = _why_no_mini_batch(sweeps, n_missing_counts, choices)
    n_missing = len(rounds) - len(found) + n_missing_counts
    return Part(trials, sweeps, frozenset(seen), n_missing, left_out)


def _why_no_mini_batch(
    sweeps: tuple[Sweep, ...], n_missing_counts: int, choices: Choices
) -> str | None:
    """Why the mini-batch that was counted cannot be drawn here; None where it can."""
    datasets = {dataset for sweep in sweeps for dataset in sweep.values("dataset")}
    missing = sorted(dataset for dataset in datasets if not is_here(dataset, choices))
    if missing:
        return (
            f"it draws a mini-batch of {', '.join(missing)}, not in data_root={choices.data_root}"
        )
    return f"{n_missing_counts} of its counts are not there" if n_missing_counts else None
