"""Batch counts of one policy on one mini-batch, with lower bounds and scheduling time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynbatch.harness.contracts.policy import (
    LearnedPolicy,
    LearnedRun,
    LearningSettings,
    Policy,
    compile_policy,
    is_learned,
    learn_policy,
    load_policy,
)
from dynbatch.harness.errors import ConfigError, ScheduleError
from dynbatch.harness.measuring.clock import PhaseClock, pause_collector, time_call
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.policies.parts.segments import (
    schedule_in_segments,
    select_first_segment,
)
from dynbatch.harness.records.count_row import BatchCounts, Generalization
from dynbatch.harness.values.graph import UNBATCHABLE, Graph
from dynbatch.harness.values.schedule import Schedule, check_schedule

MIN_CALLS, MAX_CALLS, ENOUGH_S = 5, 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPair:
    """Graphs of a mini-batch: the requested one, and the one of ED-Batch's released code."""

    plain: Graph
    released: Graph


@dataclass(frozen=True, slots=True)
class Fitted:
    """Policy for one graph.

    Attributes:
        learned: The policy itself if it is learned, otherwise None.
        learn_s: Seconds of learning; None if it was not learned in this count.
    """

    policy: Policy
    learned: LearnedPolicy | None = None
    learn_s: float | None = None

    def run(self, graph: Graph) -> tuple[Schedule, LearnedRun | None]:
        """Schedule a graph, segment by segment if it has several segments."""
        if self.learned is None:
            return schedule_in_segments(self.policy, graph), None
        run = self.learned.run(graph)
        return run.schedule, run


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Policy for each of the two graphs.

    Attributes:
        released: None if a saved policy has learned other types than the released graph has.
        reason_ed: The reason then; otherwise None.
    """

    name: str
    plain: Fitted
    released: Fitted | None
    reason_ed: str | None = None


def build_scheduler(
    name: str, settings: LearningSettings, workload: str, train: GraphPair
) -> Scheduler:
    """Load a policy, or learn one for each of the two graphs.

    A policy learns on the first segment of a graph. A policy in `settings.file` is used for both
    graphs.

    Raises:
        ConfigError: The policy is unknown, or the file does not fit it.
    """
    if not is_learned(name):
        fitted = Fitted(load_policy(name))
        return Scheduler(name, fitted, fitted)
    if settings.file is not None:
        machine = learn_policy(name, [train.plain], settings, workload)
        fitted = Fitted(machine, machine)
        try:
            fitted.run(train.released)
        except ConfigError:
            # A policy learned on that graph would be another one than the saved policy.
            reason = (
                f"{settings.file} was learned on other types than those of the released graph;"
                " remove learning.file to learn on that graph"
            )
            return Scheduler(name, fitted, None, reason)
        return Scheduler(name, fitted, fitted)
    compile_policy(name)
    plain = _learn(name, train.plain, settings, workload)
    return Scheduler(
        name, plain, _learn(name, train.released, settings, f"{workload}, released graph")
    )


def _learn(name: str, graph: Graph, settings: LearningSettings, workload: str) -> Fitted:
    seen = [select_first_segment(graph)]
    machine, learn_s = time_call(
        lambda: learn_policy(name, seen, settings, workload), synchronize=lambda: None
    )
    return Fitted(machine, machine, learn_s)


def count_batches(
    scheduler: Scheduler,
    graphs: GraphPair,
    following: Sequence[GraphPair] = (),
    enough_s: float = ENOUGH_S,
) -> BatchCounts:
    """Schedule both graphs, check the schedules, and time the policy on the requested graph.

    Args:
        following: Further mini-batches, which are only counted.
        enough_s: Total seconds of timed calls after which timing may stop.

    Raises:
        ScheduleError: The policy returned an invalid schedule.
    """
    name = scheduler.name
    plain = _count(name, scheduler.plain, graphs.plain, [pair.plain for pair in following])
    after = [pair.released for pair in following]
    released = _count(name, scheduler.released, graphs.released, after)
    return BatchCounts(
        n_vertices=graphs.plain.n_vertices,
        n_nodes_ed=graphs.released.n_vertices,
        n_unbatchable_ed=int((graphs.released.types == UNBATCHABLE).sum()),
        schedule_s=measure_schedule_s(scheduler.plain.policy, graphs.plain, enough_s),
        reason_ed=scheduler.reason_ed,
        **plain,
        **{f"{name}_ed": value for name, value in released.items()},
    )


def _count(
    name: str, fitted: Fitted | None, graph: Graph, following: Sequence[Graph]
) -> dict[str, Any]:
    """Return the counts of one policy on one graph, after checking its schedule."""
    counts: dict[str, Any] = {"n_batches": None, "lower_bound": compute_lower_bound(graph)}
    if fitted is None:
        return counts
    schedule, run = fitted.run(graph)
    try:
        check_schedule(graph, schedule)
    except ScheduleError as error:
        message = f"policy {name} returned an invalid schedule: {error}"
        raise ScheduleError(message) from error
    counts |= {"n_batches": schedule.n_batches, "learn_s": fitted.learn_s}
    counts |= {"following": count_following(fitted, following)}
    if fitted.learned is not None and run is not None:
        counts |= {"n_trials": fitted.learned.n_trials, "unseen_fraction": run.unseen_fraction}
    return counts


def count_following(fitted: Fitted, graphs: Sequence[Graph]) -> Generalization | None:
    """Count the batches of further graphs; return None if there are none."""
    if not graphs:
        return None
    schedules, runs = zip(*map(fitted.run, graphs), strict=True)
    counts = tuple(schedule.n_batches for schedule in schedules)
    bounds = tuple(compute_lower_bound(graph) for graph in graphs)
    learned = [run for run in runs if run is not None]
    n_decisions = sum(run.n_decisions for run in learned)
    return Generalization(
        n_batches=counts,
        lower_bound=bounds,
        ratio=statistics.fmean(n / bound for n, bound in zip(counts, bounds, strict=True)),
        unseen_fraction=sum(run.n_unseen for run in learned) / n_decisions if n_decisions else None,
    )


def measure_schedule_s(policy: Policy, graph: Graph, enough_s: float = ENOUGH_S) -> float:
    """Measure the median seconds of scheduling a graph, including all its segments.

    The first call, which may compile, does not count.
    """
    schedule_in_segments(policy, graph)
    clock = PhaseClock(synchronize=lambda: None)
    samples: list[float] = []
    with pause_collector():
        while len(samples) < MIN_CALLS or (sum(samples) < enough_s and len(samples) < MAX_CALLS):
            clock.start()
            schedule_in_segments(policy, graph)
            samples.append(clock.stop().total_s)
    return statistics.median(samples)
