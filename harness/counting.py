"""Batch counts of one policy on one mini-batch, beside the bounds, and the time of a decision."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from harness.clock import PhaseClock, collector_paused
from harness.errors import ScheduleError
from harness.graph import Graph
from harness.policies import Policy
from harness.policies.bound import lower_bound
from harness.schedule import check_schedule

MIN_CALLS, MAX_CALLS, ENOUGH_S = 5, 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """One policy's counts; those ending in _ed are of the graph that ED-Batch's release counts.

    schedule_s: median over repeated calls on the graph itself, warm-up apart.
    """

    policy: str
    n_vertices: int
    n_batches: int
    lower_bound: int
    n_nodes_ed: int
    n_batches_ed: int
    lower_bound_ed: int
    schedule_s: float


def count_batches(name: str, policy: Policy, graph: Graph, released: Graph) -> BatchCounts:
    """Schedule both graphs, prove both schedules, and time the policy on the first.

    Raises ScheduleError if the policy breaks a rule.
    """
    schedule, schedule_ed = policy(graph), policy(released)
    try:
        check_schedule(graph, schedule)
        check_schedule(released, schedule_ed)
    except ScheduleError as error:
        raise ScheduleError(f"policy {name} made a schedule that is not valid: {error}") from error
    return BatchCounts(
        policy=name,
        n_vertices=graph.n_vertices,
        n_batches=schedule.n_batches,
        lower_bound=lower_bound(graph),
        n_nodes_ed=released.n_vertices,
        n_batches_ed=schedule_ed.n_batches,
        lower_bound_ed=lower_bound(released),
        schedule_s=median_call_s(policy, graph),
    )


def median_call_s(policy: Policy, graph: Graph) -> float:
    """Return the median seconds of a call; the first call, which may compile, is no sample."""
    policy(graph)
    clock = PhaseClock(synchronize=lambda: None)
    samples: list[float] = []
    with collector_paused():
        while len(samples) < MIN_CALLS or (sum(samples) < ENOUGH_S and len(samples) < MAX_CALLS):
            clock.start()
            policy(graph)
            samples.append(clock.stop().total_s)
    return statistics.median(samples)
