"""The work of one mini-batch, from the plans of its functions and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from harness.contracts.timeline import Details
from harness.engine.backend import Arrangement
from harness.engine.lowering.plan import Plan
from harness.engine.lowering.work import words_of, work_of
from harness.engine.rows.rounds import ALL_ROWS


@dataclass(frozen=True, slots=True)
class TotalWork:
    """Floating-point operations, and bytes that steps read and write (lowering/work.py)."""

    n_flop: int = 0
    n_bytes: int = 0

    def __add__(self, other: TotalWork) -> TotalWork:
        return TotalWork(self.n_flop + other.n_flop, self.n_bytes + other.n_bytes)


def stage_work(plan: Plan, stage: str, n_rows: int, n_edges: int, n_batches: int) -> TotalWork:
    """Of all steps of a stage, over so many rows in so many batches."""
    total = TotalWork()
    for step in plan.steps(stage):
        work = work_of(plan, step)
        n = n_edges if work.of_edges else n_rows
        n_bytes = n * work.n_bytes + n_batches * work.n_bytes_a_batch
        total += TotalWork(n * work.n_flop, n_bytes)
    return total


def arranged_work(plans: Mapping[int, Plan], rows: Arrangement) -> TotalWork:
    """Of forward and backward as they were arranged; the step of the weights is not in it."""
    total = TotalWork()
    for stage, batches in (*rows.forward, *rows.backward):
        for type_id, n_rows, n_edges, n_batches in _by_type(rows, batches.tolist()):
            total += stage_work(plans[type_id], stage, n_rows, n_edges, n_batches)
    return total


def words_of_batch(
    plans: Mapping[int, Plan], rows: Arrangement, stage: str, type_id: int, position: int
) -> tuple[str, Details]:
    """The name of a batch on a timeline, and its rows, steps and work."""
    plan = plans[type_id]
    n_rows, n_edges = _rows_and_edges(rows, type_id, position)
    work = stage_work(plan, stage, n_rows, n_edges, 1)
    steps = ", ".join(words_of(plan, step) for step in plan.steps(stage))
    place = "all batches" if position == ALL_ROWS else f"batch {position}"
    details: Details = {"stage": stage, "place": place, "rows": n_rows, "steps": steps}
    details |= {"FLOP": work.n_flop, "bytes touched": work.n_bytes}
    return f"{plan.name} x {n_rows}", details


def _by_type(
    rows: Arrangement, batches: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int, int, int]]:
    """Of each function: its rows, edges and batches in these."""
    found: dict[int, list[int]] = {}
    for type_id, position in batches:
        mine = found.setdefault(type_id, [0, 0, 0])
        for k, n in enumerate((*_rows_and_edges(rows, type_id, position), 1)):
            mine[k] += n
    for type_id, (n_rows, n_edges, n_batches) in found.items():
        yield type_id, n_rows, n_edges, n_batches


def _rows_and_edges(rows: Arrangement, type_id: int, position: int) -> tuple[int, int]:
    geometry = rows.types[type_id]
    if position == ALL_ROWS:
        return geometry.rows.n, geometry.n_edges
    start, end = geometry.rows.starts[position : position + 2].tolist()
    if not geometry.n_edges:
        return end - start, 0
    edge_start = geometry.gathers[None].edge_start
    return end - start, int(edge_start[end] - edge_start[start])
