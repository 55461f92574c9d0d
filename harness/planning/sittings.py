"""Sittings: what one job of the pipeline measures, a round of trials that stand at one point.

One process measures them one after the other, in the order that is drawn for the round, so that a
slow change of the machine meets all systems of a point alike. A sitting has those trials of its
point that the same artefacts want: who asks for one artefact measures nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.planning.artefacts import PlannedTrial, measuring_order
from harness.planning.budget import Step
from harness.planning.ordering import in_rounds, point_of
from harness.planning.running import while_none_runs
from harness.records.files import writing
from harness.records.measured import sitting_path, write_measured
from harness.records.record import path_of

MOST_TRIALS = 32  # a command line has their specs, and 128 KiB for them


@dataclass(frozen=True, slots=True)
class Sitting:
    """Trials in the order of measuring, all in one round, and the artefacts that want them.

    name: path-safe; the same in every round.
    """

    name: str
    round: int
    trials: tuple[PlannedTrial, ...]
    artefacts: frozenset[str]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(Step(trial.trial_id, self.round) for trial in self.trials)

    def file(self, results_dir: Path) -> Path:
        """What says that it is over."""
        return sitting_path(results_dir, self.name, self.round)

    def records(self, results_dir: Path) -> tuple[Path, ...]:
        return tuple(path_of(results_dir, *step) for step in self.steps)


def sittings_of(plans: Mapping[str, Sequence[PlannedTrial]]) -> tuple[Sitting, ...]:
    """All sittings of these artefacts, in the order of measuring: round after round."""
    trials = measuring_order(trial for plan in plans.values() for trial in plan)
    points = {trial.trial_id: point_of(trial.spec) for trial in trials}
    wanted = _wanted(plans)
    together: dict[tuple[int, str, frozenset[str]], list[PlannedTrial]] = {}
    for trial, round_ in in_rounds(trials, lambda one: one.rounds, lambda one: one.spec):
        artefacts = frozenset(wanted[Step(trial.trial_id, round_)])
        together.setdefault((round_, points[trial.trial_id], artefacts), []).append(trial)
    return tuple(
        Sitting(_name(some, artefacts), round_, some, artefacts)
        for (round_, _, artefacts), members in together.items()
        for some in _cut(members)
    )


def _cut(members: Sequence[PlannedTrial]) -> Iterator[tuple[PlannedTrial, ...]]:
    """Parts that are small enough, of the same trials in every round, in the order drawn for it."""
    ids = sorted(trial.trial_id for trial in members)
    for start in range(0, len(ids), MOST_TRIALS):
        part = set(ids[start : start + MOST_TRIALS])
        yield tuple(trial for trial in members if trial.trial_id in part)


def _wanted(plans: Mapping[str, Sequence[PlannedTrial]]) -> dict[Step, set[str]]:
    """Artefacts that want each round of each trial; some want more rounds than others."""
    wanted: dict[Step, set[str]] = {}
    for name, plan in plans.items():
        for trial in plan:
            for round_ in range(trial.rounds):
                wanted.setdefault(Step(trial.trial_id, round_), set()).add(name)
    return wanted


def _name(trials: Sequence[PlannedTrial], artefacts: Iterable[str]) -> str:
    """The point in words, and a hash of who is measured there for whom."""
    ids = sorted(trial.trial_id for trial in trials)
    digest = hashlib.sha256(json.dumps([ids, sorted(artefacts)]).encode()).hexdigest()[:8]
    spec = trials[0].spec
    sizes = (f"bs{spec.batch_size}", f"h{spec.hidden_size}")
    words = (spec.model, spec.dataset, *sizes, spec.mode, digest)
    return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", word) for word in words)


def keep_true(
    sittings: Sequence[Sitting], results_dir: Path, is_lacking: Callable[[Step], bool]
) -> None:
    """Make the files of sittings whose records are all there, and drop those of all others.

    As old as the newest of its records: what was drawn of those is not drawn again, what was drawn
    before is. Nothing happens while a run goes on, which counts on what is there. Raises
    OutputError where the folder cannot be written.
    """
    if not results_dir.is_dir():
        return
    with writing(results_dir), while_none_runs(results_dir) as is_alone:
        if is_alone:
            _drop_unknown(sittings, results_dir)
            for sitting in sittings:
                _keep_true(sitting, results_dir, any(map(is_lacking, sitting.steps)))


def _keep_true(sitting: Sitting, results_dir: Path, lacks: bool) -> None:
    file = sitting.file(results_dir)
    if lacks:
        file.unlink(missing_ok=True)
        return
    records = sitting.records(results_dir)
    newest_ns = max(record.stat().st_mtime_ns for record in records)
    if not file.exists() or file.stat().st_mtime_ns < newest_ns:
        write_measured(file, records)
        os.utime(file, ns=(newest_ns, newest_ns))


def _drop_unknown(sittings: Iterable[Sitting], results_dir: Path) -> None:
    """Folders of sittings that no artefact wants any more."""
    known = {sitting.file(results_dir).parent for sitting in sittings}
    for folder in sitting_path(results_dir, "any", 0).parents[1].glob("*"):
        if folder not in known:
            for file in folder.glob("[0-9]*.json"):
                file.unlink()
            with suppress(OSError):  # what else is in it is not ours
                folder.rmdir()
