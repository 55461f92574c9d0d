"""The mini-batch of a sweep as a graph again, with the policies that scheduled it.

Counting and drawing are apart: a policy decides the same again, and that it made as many batches
when it was counted is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.counts.counting import Scheduler, scheduler
from harness.counts.request import Request, Source
from harness.counts.sweep_requests import parse_requests
from harness.errors import RecordError
from harness.planning.sweep import Sweep
from harness.policies.parts.rounds import schedule_in_rounds
from harness.records.count_row import AnyCount, CountRow, FailedCount
from harness.values.graph import Graph
from harness.values.schedule import Schedule
from plots.numbers.artefact import Artefact


@dataclass(frozen=True, slots=True)
class CountedGraph:
    """A graph, how each policy batches it, and the policies, which may have learned.

    Policies that failed when they were counted are left out.
    """

    request: Request
    graph: Graph
    schedules: dict[str, Schedule]
    schedulers: dict[str, Scheduler]


def failures(artefact: Artefact) -> dict[str, FailedCount]:
    """Policies that have no schedule, each with why."""
    return {row.policy: row for row in artefact.counts if isinstance(row, FailedCount)}


def counted_graph(artefact: Artefact) -> CountedGraph | None:
    """Build the graph of the one mini-batch that an artefact counts; None where all counts failed.

    Raises RecordError where a count is missing, or is not what the policy does now.
    """
    (sweep,) = artefact.sweeps
    failed = failures(artefact)
    if failed.keys() >= set(sweep.values("policy")):
        return None
    (request,) = parse_requests([*sweep.overrides, f"data_root={artefact.data_root}"])
    graphs = Source(request).at(request.offset)
    schedulers = {
        name: scheduler(name, request.spec.learning, request.workload, graphs)
        for name in request.policies
        if name not in failed
    }
    schedules = {
        name: schedule_in_rounds(one.plain, graphs.plain) for name, one in schedulers.items()
    }
    for name, schedule in schedules.items():
        _check(artefact.count(policy=name), name, schedule, sweep)
    return CountedGraph(request, graphs.plain, schedules, schedulers)


def _check(row: AnyCount | None, name: str, schedule: Schedule, sweep: Sweep) -> None:
    counted = row.n_batches if isinstance(row, CountRow) else None
    if counted != schedule.n_batches:
        raise RecordError(
            f"{sweep.sweep_id} has {counted or 'no'} batches of {name}, which now makes "
            f"{schedule.n_batches}; delete its file and count again"
        )
