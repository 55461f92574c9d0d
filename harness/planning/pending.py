"""What a run of the pipeline still has to do, how long that takes, and what a budget lets it do."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.machine.facts import cpu_model
from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.budget import Step, seconds_of, within
from harness.planning.durations import COUNT_S, DRAWN_S, OTHERS_S, Durations, timed_in, words_of
from harness.planning.run_plan import RunPlan
from harness.planning.sweep import Sweep
from harness.records.record import TRIED_AGAIN, find_record, path_of
from harness.records.whole_files import put_aside
from harness.trials.sources import SourceHashes


@dataclass(frozen=True, slots=True)
class Pending:
    """What a run's artefacts lack, and how much of it is to be measured now.

    seconds, files: of every step that is missing. now: those that may be measured in this run: all,
    or what the budget lets in. n_known: records of this machine that tell how long steps take.
    """

    scale: str
    seconds: Mapping[Step, float]
    files: Mapping[Step, Path]
    now: frozenset[Step]
    n_known: int
    budget_s: float | None = None

    def is_lacking(self, step: Step) -> bool:
        """Whether a step has no record that stands."""
        return step in self.seconds

    def is_in(self, step: Step) -> bool:
        """Whether a step is done already, or in this run."""
        return step not in self.seconds or step in self.now

    def words(self, steps: Collection[Step], n_drawn: int) -> str:
        """One line before a run: what it measures, and about how long it takes.

        steps: that it will take. n_drawn: artefacts that it will draw.
        """
        trials = {step.name for step in steps}
        source = f"{self.n_known} records of this machine" if self.n_known else "usual times"
        left_out = len(self.seconds) - len(self.now)
        rest = f"; {left_out} more are left for the next run" if left_out else ""
        whole_s = sum(map(self._seconds_of, steps)) + DRAWN_S * n_drawn
        return (
            f"{len(steps)} rounds of {len(trials)} trials and counts to measure at {self.scale}"
            f" scale, {n_drawn} artefacts to draw: about {words_of(whole_s)}, by {source}{rest}"
        )

    def put_outdated_aside(self) -> None:
        """Move records away that the code has outdated, and that this run leaves to the next."""
        for step in self.seconds.keys() - self.now:
            put_aside(self.files[step])

    def run_plan(self, steps: Collection[Step], n_drawn: int) -> RunPlan:
        """What the processes of a run are told when it begins."""
        now = time.time()
        until = None if self.budget_s is None else now + self.budget_s - DRAWN_S * n_drawn
        planned = (step for step in steps if step in self.files)
        return RunPlan(now, until, {str(self.files[s]): self._seconds_of(s) for s in planned})

    def _seconds_of(self, step: Step) -> float:
        return self.seconds.get(step, OTHERS_S)  # what is measured again though it is there


def pending_of(
    choices: Choices,
    plans: Mapping[str, Sequence[PlannedTrial]],
    counts: Mapping[str, Sequence[Sweep]],
    first: Collection[str],
    budget: str | None = None,
) -> Pending:
    """Look what is there.

    plans, counts: of every artefact. first: artefacts that matter most. Raises ConfigError for a
    budget that is no length of time, or too short for anything.
    """
    durations = Durations(timed_in(choices.results_dir, cpu_model()))
    sources = SourceHashes()
    seconds: dict[Step, float] = {}
    files: dict[Step, Path] = {}
    looked_at: set[Step] = set()
    lacks: dict[str, list[Step]] = {}
    for name in sorted(plans, key=lambda name: name not in first):
        for trial in plans[name]:
            takes_s = durations.of(trial.spec)
            for round_ in range(trial.rounds):
                step = Step(trial.trial_id, round_)
                path = path_of(choices.results_dir, *step)
                if step not in looked_at and not _is_there(path, trial, round_, sources):
                    seconds[step], files[step] = takes_s, path
                looked_at.add(step)
                if step in seconds:
                    lacks.setdefault(name, []).append(step)
        for sweep in counts.get(name, ()):
            step, path = Step(sweep.sweep_id, 0), sweep.path(choices.results_dir)
            if not path.exists():
                seconds[step], files[step] = COUNT_S, path
                lacks.setdefault(name, []).append(step)
    budget_s = None if budget is None else seconds_of(budget)
    now = frozenset(seconds)
    if budget_s is not None:
        now = within(budget_s - DRAWN_S * len(plans), lacks, seconds)
    return Pending(choices.scale, seconds, files, now, durations.n_known, budget_s)


def _is_there(path: Path, trial: PlannedTrial, round_: int, sources: SourceHashes) -> bool:
    """Whether the pipeline keeps what lies there: also that a framework was missing, say."""
    record = find_record(path) if path.exists() else None
    if record is None:
        return False
    source = sources.of(trial.spec)
    is_failure = record.status in TRIED_AGAIN and record.source_sha256 == source
    return is_failure or record.answers(trial.spec.with_round(round_), source)
