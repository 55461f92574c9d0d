"""What a run of the pipeline still has to do, how long that takes, and what a budget lets it do."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError
from harness.machine.facts import cpu_model
from harness.planning.artefacts import Choices, PlannedTrial, measuring_order
from harness.planning.durations import (
    COUNT_S,
    DRAWN_S,
    OTHERS_S,
    Durations,
    seconds_of,
    timed_in,
    words_of,
)
from harness.planning.run_plan import RunPlan, Step
from harness.planning.sweep import Sweep
from harness.records.files import put_aside
from harness.records.record import TRIED_AGAIN, Record, find_record
from harness.records.reuse import Present
from harness.trials.sources import SourceHashes
from harness.trials.spec import TrialSpec

# What a run before left of a trial that failed is kept, and tried again where one says so. Another
# machine than was planned for is no failure of the trial: the next job may get the right one.
KEPT = TRIED_AGAIN - {"other_machine"}


@dataclass(frozen=True, slots=True)
class Pending:
    """What a run's artefacts lack, and how much of it is to be measured now.

    seconds, files: of every step that is lacking, or failed before. lacking: steps without a record
    that stands. now: those of them that may be measured in this run: all, or what the budget lets
    in. n_known: records of this machine that tell how long steps take.
    """

    scale: str
    seconds: Mapping[Step, float]
    files: Mapping[Step, Path]
    lacking: frozenset[Step]
    now: frozenset[Step]
    n_known: int
    budget_s: float | None = None

    def is_lacking(self, step: Step) -> bool:
        """Whether a step has no record that stands."""
        return step in self.lacking

    def choose(self, steps: Iterable[Step], *, failed: bool) -> tuple[Step, ...]:
        """Return the steps that a job measures in this run; failed: also those that failed."""
        tried = self.now | (self.seconds.keys() - self.lacking if failed else frozenset())
        return tuple(step for step in steps if step in tried)

    def is_in(self, step: Step) -> bool:
        """Whether a step is done already, or in this run."""
        return step not in self.lacking or step in self.now

    def words(self, steps: Collection[Step], n_drawn: int) -> str:
        """One line before a run: what it measures, and about how long it takes.

        steps: that it will take. n_drawn: experiments that it will draw.
        """
        trials = {step.name for step in steps}
        source = f"{self.n_known} records of this machine" if self.n_known else "usual times"
        left_out = len(self.lacking) - len(self.now)
        rest = f"; {left_out} more are left for the next run" if left_out else ""
        whole_s = sum(map(self._seconds_of, steps)) + DRAWN_S * n_drawn
        return (
            f"{len(steps)} rounds of {len(trials)} trials and counts to measure at {self.scale}"
            f" scale, {n_drawn} experiments to draw: about {words_of(whole_s)}, by {source}{rest}"
        )

    def put_outdated_aside(self) -> None:
        """Move records away that the code has outdated, and that this run leaves to the next."""
        for step in self.lacking - self.now:
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
    sources: SourceHashes,
    budget: str | None = None,
    cpu: str | None = None,
) -> Pending:
    """Look what is there.

    plans, counts: of every artefact. first: artefacts that matter most. cpu: what the name of the
    CPU has that measures; None: it is this machine's. Raises ConfigError for a
    budget that is no length of time, or too short for anything.
    """
    present = Present(sources, measures_here=cpu is None)
    durations = Durations(timed_in(choices.results_dir, cpu_model() if cpu is None else cpu))
    seconds: dict[Step, float] = {}
    files: dict[Step, Path] = {}
    lacking: set[Step] = set()
    for trial in measuring_order(trial for plan in plans.values() for trial in plan):
        takes_s = durations.of(trial.spec)
        for round_, path in enumerate(trial.record_paths(choices.results_dir)):
            record = find_record(path) if path.exists() else None
            spec = trial.spec.with_round(round_)
            if not present.is_kept(record, spec):
                step = Step(trial.trial_id, round_)
                seconds[step], files[step] = takes_s, path
                lacking |= set() if _is_failure(record, spec, present) else {step}
    for sweep in (sweep for sweeps in counts.values() for sweep in sweeps):
        step, path = Step(sweep.sweep_id, 0), sweep.path(choices.results_dir)
        if not path.exists():
            seconds[step], files[step] = COUNT_S, path
            lacking.add(step)
    budget_s = None if budget is None else seconds_of(budget)
    now = frozenset(lacking)
    if budget_s is not None:
        lacks = _lacks(plans, counts, first, lacking)
        now = within(budget_s - DRAWN_S * len(plans), lacks, seconds)
    known = durations.n_known
    return Pending(choices.scale, seconds, files, frozenset(lacking), now, known, budget_s)


def _lacks(
    plans: Mapping[str, Sequence[PlannedTrial]],
    counts: Mapping[str, Sequence[Sweep]],
    first: Collection[str],
    lacking: Collection[Step],
) -> dict[str, list[Step]]:
    """What each artefact lacks, what matters most first."""
    found: dict[str, list[Step]] = {}
    for name in sorted(plans, key=lambda name: name not in first):
        steps = [Step(t.trial_id, round_) for t in plans[name] for round_ in range(t.rounds)]
        steps += [Step(sweep.sweep_id, 0) for sweep in counts.get(name, ())]
        if missing := [step for step in steps if step in lacking]:
            found[name] = missing
    return found


def _is_failure(record: Record | None, spec: TrialSpec, present: Present) -> bool:
    """Return whether a record says that a framework was missing, say; the pipeline keeps those."""
    if record is None or record.status not in KEPT:
        return False
    is_of_now = present.is_of_this_code(record, spec)
    return is_of_now and present.find_change(record, spec) is None


def within(
    budget_s: float, artefacts: Mapping[str, Sequence[Step]], seconds: Mapping[Step, float]
) -> frozenset[Step]:
    """Choose the steps that fit in a budget: round after round, artefact after artefact.

    artefacts: what each lacks, what matters most first. seconds: of every step. A round of an
    artefact is taken as a whole or not at all, so that its table compares all systems; where one
    does not fit, a later, shorter one may. Raises ConfigError where none fits at all.
    """
    chosen: set[Step] = set()
    left = budget_s
    shortest: tuple[float, str] | None = None
    for round_ in sorted({step.round for steps in artefacts.values() for step in steps}):
        for name, steps in artefacts.items():
            new = {step for step in steps if step.round == round_} - chosen
            cost = sum(seconds[one] for one in new)
            if new and cost <= left:
                chosen |= new
                left -= cost
            elif new and not chosen:
                shortest = min(shortest or (cost, name), (cost, name))
    if shortest and not chosen:
        cost, name = shortest
        raise ConfigError(
            f"a budget of {words_of(budget_s)} is too short for a round of anything; the shortest,"
            f" of {name}, takes about {words_of(cost)}: give more"
        )
    return frozenset(chosen)
