"""What a schedule runs, as plain lists."""

from __future__ import annotations

from harness.values.graph import Graph
from harness.values.schedule import Schedule


def types_in_order(graph: Graph, schedule: Schedule) -> list[int]:
    """The type of each batch."""
    return graph.types[schedule.order[schedule.starts[:-1]]].tolist()


def batches(schedule: Schedule) -> list[list[int]]:
    """The vertices of each batch."""
    return [schedule.batch(b).tolist() for b in range(schedule.n_batches)]
