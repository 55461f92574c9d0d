"""Where every vertex's state lives, and which gathers need no copy.

Vertices are renumbered in execution order, so that a batch writes one contiguous block of rows
(scatter is free). Inside a batch, vertices are ordered as their consumers will read them, so that a
gather is a view wherever its rows follow one another; only the rest is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from harness.graph import Graph, MiniBatch
from harness.instances import IntArray
from harness.schedule import Schedule

Index = NDArray[np.int64]
NOT_CONTIGUOUS = -1


@dataclass(frozen=True, eq=False, slots=True)
class Gather:
    """The child rows that one type reads, row by row of the type, slots side by side.

    index (n * n_slots,): rows of the children's state. first (n_batches,): the first row where all
    rows of a batch follow one another, else NOT_CONTIGUOUS; whole: the same for all batches at once.
    edge_start (n + 1,): where each vertex's edges begin, for gathers of any number of children.
    """

    index: Index
    first: Index
    whole: int
    edge_start: Index


@dataclass(frozen=True, eq=False, slots=True)
class TypeRows:
    """The vertices of one type in execution order.

    vertices (n,), starts (n_batches + 1,): batch boundaries. first_row (n_batches,): where each batch
    begins among the rows of the states that this type writes.
    """

    vertices: IntArray
    starts: IntArray
    first_row: IntArray

    @property
    def n(self) -> int:
        """Vertices of this type."""
        return len(self.vertices)


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """Batches in order, as (type, position among the type's batches), and each type's rows.

    row (n,): row of each vertex among the states of its own type's space.
    """

    batches: tuple[tuple[int, int], ...]
    types: Mapping[int, TypeRows]
    row: IntArray
    n_rows: tuple[int, ...]


def plan_layout(
    mini_batch: MiniBatch, schedule: Schedule, space_of_type: Sequence[int], *, reorder: bool
) -> Layout:
    """Choose rows for every vertex.

    "Type" means vertex function from here on: an unbatchable vertex has one too.
    space_of_type: types that write the same states share a space, in which rows are counted.
    reorder: order each batch as its consumers read it; otherwise keep the policy's order.
    """
    graph, kinds, order = mini_batch.graph, mini_batch.functions, schedule.order
    if reorder:
        order = _order_as_read(order, schedule.starts, graph.arg_start, graph.args)
    spaces = np.asarray(space_of_type, dtype=np.int32)
    row, first_row, batch_type, n_rows = _assign_rows(
        order, schedule.starts, kinds, spaces, int(spaces.max(initial=0)) + 1
    )
    sizes = np.diff(schedule.starts)
    types = {}
    position = np.empty(schedule.n_batches, dtype=np.int32)
    kinds_in_order = kinds[order]
    for type_id in np.unique(batch_type):
        mine = np.flatnonzero(batch_type == type_id)
        position[mine] = np.arange(len(mine))
        starts = np.zeros(len(mine) + 1, dtype=np.int32)
        np.cumsum(sizes[mine], out=starts[1:])
        types[int(type_id)] = TypeRows(order[kinds_in_order == type_id], starts, first_row[mine])
    batches = tuple(zip(batch_type.tolist(), position.tolist(), strict=True))
    return Layout(batches, types, row, tuple(n_rows.tolist()))


def plan_gather(graph: Graph, layout: Layout, rows: TypeRows, slots: Sequence[int]) -> Gather:
    """Rows that a type's vertices read through the given argument slots, in this order."""
    first_arg = graph.arg_start[rows.vertices]
    columns = [layout.row[graph.args[first_arg + slot]] for slot in slots]
    index = np.stack(columns, axis=1).ravel().astype(np.int64)
    bounds = rows.starts.astype(np.int64) * len(slots)
    first, whole = _contiguous_runs(index, bounds)
    return Gather(index, first, int(whole), np.arange(rows.n + 1, dtype=np.int64))


def plan_gather_each(graph: Graph, layout: Layout, rows: TypeRows) -> Gather:
    """Rows of all children of a type's vertices, edge by edge."""
    counts = graph.arg_start[rows.vertices + 1] - graph.arg_start[rows.vertices]
    edge_start = np.zeros(rows.n + 1, dtype=np.int64)
    np.cumsum(counts, out=edge_start[1:])
    offsets = np.repeat(graph.arg_start[rows.vertices] - edge_start[:-1], counts)
    index = layout.row[graph.args[offsets + np.arange(edge_start[-1])]].astype(np.int64)
    first, whole = _contiguous_runs(index, edge_start[rows.starts])
    return Gather(index, first, int(whole), edge_start)


@numba.njit(cache=True)
def _order_as_read(
    order: IntArray, starts: IntArray, arg_start: IntArray, args: IntArray
) -> IntArray:  # pragma: no cover - compiled
    """Sort each batch by the place (position, slot) of its first reader; unread vertices go last.

    Batches are settled from the last to the first, since a reader's place must be known first;
    settling an earlier reader overwrites what a later one asked for.
    """
    n = len(order)
    unread = np.int64(1) << 62
    place = np.full(n, unread, dtype=np.int64)
    result = np.empty(n, dtype=np.int32)
    read_before = np.int64(len(args))
    for b in range(len(starts) - 2, -1, -1):
        members = order[starts[b] : starts[b + 1]]
        if len(members) > 1:
            members = members[np.argsort(place[members], kind="mergesort")]
        result[starts[b] : starts[b + 1]] = members
        n_read = 0
        for vertex in members:
            n_read += arg_start[vertex + 1] - arg_start[vertex]
        read_before -= n_read
        at = read_before
        for vertex in members:
            for k in range(arg_start[vertex], arg_start[vertex + 1]):
                place[args[k]] = at
                at += 1
    return result


@numba.njit(cache=True)
def _assign_rows(
    order: IntArray, starts: IntArray, types: IntArray, space_of_type: IntArray, n_spaces: int
) -> tuple[IntArray, IntArray, IntArray, IntArray]:  # pragma: no cover - compiled
    n_batches = len(starts) - 1
    row = np.empty(len(order), dtype=np.int32)
    first_row = np.empty(n_batches, dtype=np.int32)
    batch_type = np.empty(n_batches, dtype=np.int32)
    used = np.zeros(n_spaces, dtype=np.int32)
    for b in range(n_batches):
        batch_type[b] = types[order[starts[b]]]
        space = space_of_type[batch_type[b]]
        first_row[b] = used[space]
        for k in range(starts[b], starts[b + 1]):
            row[order[k]] = used[space]
            used[space] += 1
    return row, first_row, batch_type, used


@numba.njit(cache=True)
def _contiguous_runs(index: Index, bounds: Index) -> tuple[Index, int]:  # pragma: no cover - compiled
    first = np.empty(len(bounds) - 1, dtype=np.int64)
    whole = index[0] if len(index) else 0
    for b in range(len(first)):
        start, end = bounds[b], bounds[b + 1]
        first[b] = index[start] if end > start else 0
        for k in range(start, end):
            if index[k] != index[start] + k - start:
                first[b] = NOT_CONTIGUOUS
            if index[k] != index[0] + k:
                whole = NOT_CONTIGUOUS
    return first, whole
