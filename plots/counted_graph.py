"""The mini-batch of a sweep as a graph again, with the policies that scheduled it.

Counting and drawing are apart: a policy decides the same again, and that it made as many batches
when it was counted is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.count_row import CountRow
from harness.counting import Scheduler, scheduler
from harness.errors import RecordError
from harness.graph import Graph
from harness.schedule import Schedule
from harness.schedule_request import Request, Source
from harness.schedule_sweep import parse_requests
from harness.sweep import Sweep
from plots.artefact import Artefact


@dataclass(frozen=True, slots=True)
class CountedGraph:
    """A graph, how each policy batches it, and the policies, which may have learned."""

    request: Request
    graph: Graph
    schedules: dict[str, Schedule]
    schedulers: dict[str, Scheduler]


def counted_graph(artefact: Artefact) -> CountedGraph:
    """Build the graph of the one mini-batch that an artefact counts.

    Raises RecordError where a count is missing, or is not what the policy does now.
    """
    (sweep,) = artefact.sweeps
    (request,) = parse_requests([*sweep.overrides, f"data_root={artefact.data_root}"])
    graphs = Source(request).at(request.offset)
    schedulers = {
        name: scheduler(name, request.spec.learning, request.workload, graphs)
        for name in request.policies
    }
    schedules = {name: one.plain(graphs.plain) for name, one in schedulers.items()}
    for name, schedule in schedules.items():
        _check(artefact.count(policy=name), name, schedule, sweep)
    return CountedGraph(request, graphs.plain, schedules, schedulers)


def _check(row: CountRow | None, name: str, schedule: Schedule, sweep: Sweep) -> None:
    counted = None if row is None else row.n_batches
    if counted != schedule.n_batches:
        raise RecordError(
            f"{sweep.sweep_id} has {counted or 'no'} batches of {name}, which now makes "
            f"{schedule.n_batches}; delete its file and count again"
        )
