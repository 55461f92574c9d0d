"""Pending work of a pipeline run, its expected duration, and its selection within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.facts import read_cpu_model
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, merge_equal_trials
from dynbatch.harness.planning.durations import (
    COUNT_S,
    DRAWN_S,
    OTHERS_S,
    Durations,
    format_duration,
    parse_duration,
    read_durations,
)
from dynbatch.harness.planning.job_specs import RunPlan, Step
from dynbatch.harness.planning.sweep import Sweep
from dynbatch.harness.records.files import put_aside
from dynbatch.harness.records.record import TRIED_AGAIN, Record, find_record
from dynbatch.harness.records.reuse import Present
from dynbatch.harness.trials.sources import SourceHashes
from dynbatch.harness.trials.spec import TrialSpec

# Failed trials of an earlier run are measured again only on request (--forcerun). A wrong machine
# is not a failure of the trial: the next job may run on the right one.
KEPT = TRIED_AGAIN - {"machine_mismatch"}
SKIPPED_S = 0.1  # a record without a process
ExplainUnsupported = Callable[[Iterable[TrialSpec]], Mapping[str, str]]


class Missing(NamedTuple):
    """Step without a valid record.

    Attributes:
        file: its output file.
        seconds: expected seconds.
        compile_s: those of compilation, if the system and model have records.
        on_request: whether it is measured only on request (--forcerun): it failed with today's
            code, or is a later round of a trial that this machine cannot run.
    """

    file: Path
    seconds: float
    compile_s: float = 0.0
    on_request: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """Steps that have no valid record, and the selection that this run measures.

    Attributes:
        lacking: steps of `missing`, without those that are measured only on request.
        now: steps of `lacking` that this run may measure: all, or those within the budget.
        later: steps of the experiments that this run draws beyond its budget.
        n_known: number of records of this machine from which durations are estimated.
        budget_s: time limit of the run; None: unlimited.
        unsupported: reasons of trials that this machine cannot run, by trial_id; each has one step.
    """

    scale: str
    missing: Mapping[Step, Missing]
    lacking: frozenset[Step]
    now: frozenset[Step]
    later: frozenset[Step]
    n_known: int
    budget_s: float | None
    unsupported: Mapping[str, str]

    def choose(self, steps: Iterable[Step], *, failed: bool) -> tuple[Step, ...]:
        """Return the steps that a job measures in this run.

        Args:
            failed: whether to include steps that failed before.
        """
        tried = self.now | (self.missing.keys() - self.lacking if failed else frozenset())
        return tuple(step for step in steps if step in tried)

    def is_in(self, step: Step) -> bool:
        """Return whether a step is done before or in this run."""
        return step not in self.lacking or step in self.now

    def describe_work(self, steps: Collection[Step], n_drawn: int) -> str:
        """Return the line that announces a run's work and its expected duration."""
        trials = {step.name for step in steps}
        source = f"{self.n_known} records of this machine" if self.n_known else "usual times"
        rest = f"; {len(self.later)} more are left for the next run" if self.later else ""
        if self.budget_s is not None:
            rest += f" (budget: {format_duration(self.budget_s)})"
        if n_unsupported := len(trials & self.unsupported.keys()):
            rest += f"; {n_unsupported} of the trials are unsupported here, and recorded once"
        whole_s = sum(map(self._estimate_seconds, steps)) + DRAWN_S * n_drawn
        compile_s = sum(self.missing[step].compile_s for step in steps if step in self.missing)
        compiling = f", {format_duration(compile_s)} of it to compile" if compile_s else ""
        return (
            f"{len(steps)} rounds of {len(trials)} trials and counts to measure at {self.scale}"
            f" scale, {n_drawn} experiments to draw: about {format_duration(whole_s)}{compiling},"
            f" by {source}{rest}"
        )

    def put_outdated_aside(self) -> None:
        """Move away outdated records of steps that this run leaves to the next one."""
        for step in self.later:
            put_aside(self.missing[step].file)

    def build_run_plan(self, steps: Collection[Step], n_drawn: int) -> RunPlan:
        """Build the plan that the processes of a run read: its start, end and expected times."""
        now = time.time()
        until = None if self.budget_s is None else now + self.budget_s - DRAWN_S * n_drawn
        planned = [self.missing[step] for step in steps if step in self.missing]
        return RunPlan(now, until, {str(step.file): step.seconds for step in planned})

    def _estimate_seconds(self, step: Step) -> float:
        if step in self.missing:
            return self.missing[step].seconds
        return OTHERS_S  # a valid record that is measured again


def find_pending(
    choices: Choices,
    plans: Mapping[str, Sequence[PlannedTrial]],
    counts: Mapping[str, Sequence[Sweep]],
    first: Collection[str],
    sources: SourceHashes,
    budget: str | None = None,
    cpu: str | None = None,
    explain_unsupported: ExplainUnsupported = lambda _: {},
    *,
    drawn: Collection[str] | None = None,
) -> Pending:
    """Find the steps that have no valid record, and select those within the budget.

    Args:
        first: experiments that have priority within a budget.
        budget: duration such as "45m"; None: unlimited.
        cpu: text in the name of the measuring CPU; None: this machine measures.
        explain_unsupported: returns why this machine cannot run trials, by trial_id. It is called
            with the trials on CUDA whose first round is missing. Of a trial that cannot run, only
            the first round gets a record. By default each trial's process finds out.
        drawn: experiments that this run draws, which have the whole budget; None: all.

    Raises:
        ConfigError: for a budget that is not a duration, or too short for any round.
    """
    present = Present(sources, measures_here=cpu is None)
    durations = Durations(
        read_durations(choices.results_dir, read_cpu_model() if cpu is None else cpu)
    )
    trials = merge_equal_trials(trial for plan in plans.values() for trial in plan)
    missing: dict[Step, Missing] = {}
    for trial in trials:
        missing |= _find_missing_rounds(trial, choices.results_dir, present, durations)
    for sweep in chain.from_iterable(counts.values()):
        if not (path := sweep.build_path(choices.results_dir)).exists():
            missing[Step(sweep.sweep_id, 0)] = Missing(path, COUNT_S)
    unsupported = _drop_unsupported(trials, missing, explain_unsupported)
    lacking = frozenset(step for step, entry in missing.items() if not entry.on_request)
    budget_s = None if budget is None else parse_duration(budget)
    now, later = lacking, frozenset[Step]()
    if budget_s is not None:
        shown = plans if drawn is None else {name: plans[name] for name in drawn}
        by_experiment = _group_missing(shown, counts, first, lacking)
        seconds = {step: entry.seconds for step, entry in missing.items()}
        now = select_within_budget(budget_s, by_experiment, seconds, DRAWN_S * len(shown))
        later = frozenset(chain.from_iterable(by_experiment.values())) - now
    n_known = durations.n_known
    return Pending(choices.scale, missing, lacking, now, later, n_known, budget_s, unsupported)


def _find_missing_rounds(
    trial: PlannedTrial, results_dir: Path, present: Present, durations: Durations
) -> dict[Step, Missing]:
    missing: dict[Step, Missing] = {}
    expected: dict[int, tuple[float, float]] = {}  # seconds of the first round and of later ones
    is_hopeless = False  # unsupported in the first round, with today's code
    for round_, path in enumerate(trial.list_record_paths(results_dir)):
        is_failure = False
        if (record := find_record(path) if path.exists() else None) is not None:
            spec = trial.spec.replace_round(round_)
            if present.is_kept(record, spec):
                continue
            is_failure = _is_failure(record, spec, present)
            is_hopeless |= round_ == 0 and is_failure and record.status == "unsupported"
        alike = min(round_, 1)
        if alike not in expected:
            compile_s = durations.estimate_compile_s(trial.spec, round_)
            expected[alike] = durations.estimate_seconds(trial.spec, round_), compile_s
        step = Step(trial.trial_id, round_)
        missing[step] = Missing(path, *expected[alike], is_failure or is_hopeless)
    return missing


def _drop_unsupported(
    trials: Iterable[PlannedTrial], missing: dict[Step, Missing], explain: ExplainUnsupported
) -> Mapping[str, str]:
    """Keep only the first round of trials that cannot run; return the reasons by trial_id."""
    firsts = [(trial.spec, missing.get(Step(trial.trial_id, 0))) for trial in trials]
    unsupported = explain(
        spec
        for spec, entry in firsts
        if spec.device == "cuda" and entry is not None and not entry.on_request
    )
    for step, entry in missing.items():
        if step.name in unsupported and not entry.on_request:
            missing[step] = Missing(entry.file, SKIPPED_S, on_request=step.round > 0)
    return unsupported


def _group_missing(
    plans: Mapping[str, Sequence[PlannedTrial]],
    counts: Mapping[str, Sequence[Sweep]],
    first: Collection[str],
    lacking: Collection[Step],
) -> dict[str, list[Step]]:
    """Return the missing steps of each experiment, those with priority first."""
    by_experiment: dict[str, list[Step]] = {}
    for name in sorted(plans, key=lambda name: name not in first):
        steps = [Step(t.trial_id, round_) for t in plans[name] for round_ in range(t.rounds)]
        steps += [Step(sweep.sweep_id, 0) for sweep in counts.get(name, ())]
        if missing := [step for step in steps if step in lacking]:
            by_experiment[name] = missing
    return by_experiment


def _is_failure(record: Record, spec: TrialSpec, present: Present) -> bool:
    """Return whether a record is of a failure with today's code, such as a missing framework."""
    if record.status not in KEPT or record.config.get("python") != spec.python:
        return False
    is_of_now = present.is_of_this_code(record, spec)
    return is_of_now and present.find_change(record, spec) is None


def select_within_budget(
    budget_s: float,
    artifacts: Mapping[str, Sequence[Step]],
    seconds: Mapping[Step, float],
    drawing_s: float = 0.0,
) -> frozenset[Step]:
    """Choose the steps that fit in a budget: round after round, experiment after experiment.

    A round of an experiment is chosen completely or not at all, so that its table compares all
    systems. If one round does not fit, a later and shorter one may.

    Args:
        artifacts: missing steps of each experiment, in order of priority.
        seconds: expected seconds of every step.
        drawing_s: expected seconds of drawing, which are part of the budget.
    """
    chosen: set[Step] = set()
    left = budget_s - drawing_s
    shortest: tuple[float, str] | None = None
    for round_ in sorted({step.round for steps in artifacts.values() for step in steps}):
        for name, steps in artifacts.items():
            new = {step for step in steps if step.round == round_} - chosen
            cost = sum(seconds[step] for step in new)
            if new and cost <= left:
                chosen |= new
                left -= cost
            elif new and not chosen:
                shortest = min(shortest or (cost, name), (cost, name))
    if shortest and not chosen:
        cost, name = shortest
        raise ConfigError(
            f"budget of {format_duration(budget_s)} is too short: the shortest round, of {name},"
            f" takes about {format_duration(cost + drawing_s)} with {format_duration(drawing_s)} to"
            " draw; set a larger budget"
        )
    return frozenset(chosen)
