"""Batch counts of one policy on one mini-batch, beside the bounds, and the time of a decision."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.contracts.policy import (
    LearnedPolicy,
    LearnedRun,
    LearningSettings,
    Policy,
    compile_policy,
    is_learned,
    learn_policy,
    load_policy,
)
from harness.errors import ConfigError, ScheduleError
from harness.measuring.clock import PhaseClock, collector_paused, timed
from harness.policies.parts.bound import lower_bound
from harness.policies.parts.rounds import first_round, run_in_rounds, schedule_in_rounds
from harness.records.count_row import BatchCounts, Generalisation
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule, check_schedule

MIN_CALLS, MAX_CALLS, ENOUGH_S = 5, 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """A mini-batch as the graph that was asked for, and as the one of ED-Batch's release."""

    plain: Graph
    released: Graph


@dataclass(frozen=True, slots=True)
class Fitted:
    """A policy for one graph; learned: itself, where it is learned; learn_s: None: not here."""

    policy: Policy
    learned: LearnedPolicy | None = None
    learn_s: float | None = None

    def run(self, graph: Graph) -> tuple[Schedule, LearnedRun | None]:
        """Schedule a graph, in rounds where it has some."""
        if self.learned is None:
            return schedule_in_rounds(self.policy, graph), None
        run = run_in_rounds(self.learned, graph)
        return run.schedule, run


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One policy for each of both graphs.

    released: None where a saved policy is of other types, which reason_ed tells.
    """

    name: str
    plain: Fitted
    released: Fitted | None
    reason_ed: str | None = None


def scheduler(name: str, settings: LearningSettings, workload: str, train: Graphs) -> Scheduler:
    """Load a policy, or learn one for each of both graphs; `settings.file` is taken for both.

    What is learned on is what is seen first of a graph.

    Raises ConfigError for a name that is no policy, and for a file that does not fit.
    """
    if not is_learned(name):
        one = Fitted(load_policy(name))
        return Scheduler(name, one, one)
    if settings.file is not None:
        machine = learn_policy(name, [train.plain], settings, workload)
        one = Fitted(machine, machine)
        try:
            one.run(train.released)
        except ConfigError:
            # Another, learned on that graph, would count what the saved one does not decide.
            reason = (
                f"{settings.file} was learned on other types than the released graph has; leave"
                " learning.file out to learn one on that graph"
            )
            return Scheduler(name, one, None, reason)
        return Scheduler(name, one, one)
    compile_policy(name)
    plain = _learn(name, train.plain, settings, workload)
    return Scheduler(
        name, plain, _learn(name, train.released, settings, f"{workload}, released graph")
    )


def _learn(name: str, graph: Graph, settings: LearningSettings, workload: str) -> Fitted:
    seen = [first_round(graph)]
    machine, learn_s = timed(
        lambda: learn_policy(name, seen, settings, workload), synchronize=lambda: None
    )
    return Fitted(machine, machine, learn_s)


def count_batches(
    scheduler: Scheduler,
    graphs: Graphs,
    following: Sequence[Graphs] = (),
    enough_s: float = ENOUGH_S,
) -> BatchCounts:
    """Schedule both graphs, in rounds if need be, prove both, and time the policy on the first.

    following: further mini-batches, which are only counted. enough_s: of timed calls.

    Raises ScheduleError if the policy breaks a rule.
    """
    name = scheduler.name
    plain = _count(name, scheduler.plain, graphs.plain, [one.plain for one in following])
    after = [one.released for one in following]
    released = _count(name, scheduler.released, graphs.released, after)
    return BatchCounts(
        n_vertices=graphs.plain.n_vertices,
        n_nodes_ed=graphs.released.n_vertices,
        n_unbatchable_ed=int((graphs.released.types == UNBATCHABLE).sum()),
        schedule_s=median_call_s(scheduler.plain.policy, graphs.plain, enough_s),
        reason_ed=scheduler.reason_ed,
        **plain,
        **{f"{name}_ed": value for name, value in released.items()},
    )


def _count(
    name: str, fitted: Fitted | None, graph: Graph, following: Sequence[Graph]
) -> dict[str, Any]:
    """What one policy does on one graph, its schedule proved, and what a learned one tells."""
    counts: dict[str, Any] = {"n_batches": None, "lower_bound": lower_bound(graph)}
    if fitted is None:
        return counts
    schedule, run = fitted.run(graph)
    try:
        check_schedule(graph, schedule)
    except ScheduleError as error:
        message = f"policy {name} made a schedule that is not valid: {error}"
        raise ScheduleError(message) from error
    counts |= {"n_batches": schedule.n_batches, "learn_s": fitted.learn_s}
    counts |= {"following": generalise(fitted, following)}
    if fitted.learned is not None and run is not None:
        counts |= {"n_trials": fitted.learned.n_trials, "unseen_share": run.unseen_share}
    return counts


def generalise(fitted: Fitted, graphs: Sequence[Graph]) -> Generalisation | None:
    """Schedule every graph; None for no graphs."""
    if not graphs:
        return None
    schedules, runs = zip(*map(fitted.run, graphs), strict=True)
    counts = tuple(schedule.n_batches for schedule in schedules)
    bounds = tuple(lower_bound(graph) for graph in graphs)
    learned = [run for run in runs if run is not None]
    n_decisions = sum(run.n_decisions for run in learned)
    return Generalisation(
        n_batches=counts,
        lower_bound=bounds,
        ratio=statistics.fmean(n / bound for n, bound in zip(counts, bounds, strict=True)),
        unseen_share=sum(run.n_unseen for run in learned) / n_decisions if n_decisions else None,
    )


def median_call_s(policy: Policy, graph: Graph, enough_s: float = ENOUGH_S) -> float:
    """Return the median seconds of scheduling a graph, in rounds where it has some.

    The first call, which may compile, is no sample.
    """
    schedule_in_rounds(policy, graph)
    clock = PhaseClock(synchronize=lambda: None)
    samples: list[float] = []
    with collector_paused():
        while len(samples) < MIN_CALLS or (sum(samples) < enough_s and len(samples) < MAX_CALLS):
            clock.start()
            schedule_in_rounds(policy, graph)
            samples.append(clock.stop().total_s)
    return statistics.median(samples)
