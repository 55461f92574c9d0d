"""Batch counts of one policy on one mini-batch, beside the bounds, and the time of a decision."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.contracts.policy import (
    LearnedPolicy,
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
from harness.values.schedule import check_schedule

MIN_CALLS, MAX_CALLS, ENOUGH_S = 5, 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """A mini-batch as the graph that was asked for, and as the one of ED-Batch's release."""

    plain: Graph
    released: Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One policy for each of both graphs; learned and learn_s are None where nothing is learned.

    released: None where a saved policy is of other types, which reason_ed tells.
    """

    name: str
    plain: Policy
    released: Policy | None
    learned: LearnedPolicy | None = None
    learned_ed: LearnedPolicy | None = None
    learn_s: float | None = None
    learn_s_ed: float | None = None
    reason_ed: str | None = None


def scheduler(name: str, settings: LearningSettings, workload: str, train: Graphs) -> Scheduler:
    """Load a policy, or learn one for each of both graphs; `settings.file` is taken for both.

    What is learned on is what is seen first of a graph.

    Raises ConfigError for a name that is no policy, and for a file that does not fit.
    """
    if not is_learned(name):
        policy = load_policy(name)
        return Scheduler(name=name, plain=policy, released=policy)
    if settings.file is not None:
        saved = learn_policy(name, [train.plain], settings, workload)
        return _saved(name, saved, settings.file, train.released)
    compile_policy(name)
    plain, learn_s = _learn(name, train.plain, settings, workload)
    released, learn_s_ed = _learn(name, train.released, settings, f"{workload}, released graph")
    return Scheduler(
        name=name,
        plain=plain,
        released=released,
        learned=plain,
        learned_ed=released,
        learn_s=learn_s,
        learn_s_ed=learn_s_ed,
    )


def _saved(name: str, machine: LearnedPolicy, file: str, released: Graph) -> Scheduler:
    """Use a saved policy for the released graph, too, where that has the types it knows.

    Another, learned on the released graph, would count what the saved one does not decide.
    """
    try:
        schedule_in_rounds(machine, released)
    except ConfigError:
        reason = (
            f"{file} was learned on other types than the released graph has; leave learning.file"
            " out to learn one on that graph"
        )
        return Scheduler(name=name, plain=machine, released=None, learned=machine, reason_ed=reason)
    return Scheduler(
        name=name, plain=machine, released=machine, learned=machine, learned_ed=machine
    )


def _learn(
    name: str, graph: Graph, settings: LearningSettings, workload: str
) -> tuple[LearnedPolicy, float]:
    seen = [first_round(graph)]
    return timed(lambda: learn_policy(name, seen, settings, workload), synchronize=lambda: None)


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
    after = [one.plain for one in following], [one.released for one in following]
    plain = _count(name, scheduler.plain, scheduler.learned, graphs.plain, after[0])
    released = _count(name, scheduler.released, scheduler.learned_ed, graphs.released, after[1])
    return BatchCounts(
        n_vertices=graphs.plain.n_vertices,
        lower_bound=lower_bound(graphs.plain),
        n_nodes_ed=graphs.released.n_vertices,
        lower_bound_ed=lower_bound(graphs.released),
        n_unbatchable_ed=int((graphs.released.types == UNBATCHABLE).sum()),
        schedule_s=median_call_s(scheduler.plain, graphs.plain, enough_s),
        learn_s=scheduler.learn_s,
        learn_s_ed=scheduler.learn_s_ed,
        reason_ed=scheduler.reason_ed,
        **plain,
        **{f"{name}_ed": value for name, value in released.items()},
    )


def _count(
    name: str,
    policy: Policy | None,
    learned: LearnedPolicy | None,
    graph: Graph,
    following: Sequence[Graph],
) -> dict[str, Any]:
    """What one policy does on one graph, its schedule proved, and what a learned one tells."""
    if policy is None:
        return {"n_batches": None}
    run = None if learned is None else run_in_rounds(learned, graph)
    schedule = schedule_in_rounds(policy, graph) if run is None else run.schedule
    try:
        check_schedule(graph, schedule)
    except ScheduleError as error:
        message = f"policy {name} made a schedule that is not valid: {error}"
        raise ScheduleError(message) from error
    counts: dict[str, Any] = {
        "n_batches": schedule.n_batches,
        "following": generalise(policy, learned, following),
    }
    if learned is not None and run is not None:
        counts |= {"n_trials": learned.n_trials, "unseen_share": run.unseen_share}
    return counts


def generalise(
    policy: Policy, learned: LearnedPolicy | None, graphs: Sequence[Graph]
) -> Generalisation | None:
    """Schedule every graph; `learned` is the policy where that is learned. None for no graphs."""
    if not graphs:
        return None
    runs = [] if learned is None else [run_in_rounds(learned, graph) for graph in graphs]
    schedules = [run.schedule for run in runs] or [schedule_in_rounds(policy, g) for g in graphs]
    counts = tuple(schedule.n_batches for schedule in schedules)
    bounds = tuple(lower_bound(graph) for graph in graphs)
    n_decisions = sum(run.n_decisions for run in runs)
    return Generalisation(
        n_batches=counts,
        lower_bound=bounds,
        ratio=statistics.fmean(n / bound for n, bound in zip(counts, bounds, strict=True)),
        unseen_share=sum(run.n_unseen for run in runs) / n_decisions if n_decisions else None,
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
