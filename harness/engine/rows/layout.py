"""Where every vertex's state lives, and which gathers need no copy.

Vertices are renumbered in execution order, so that a batch writes one contiguous block of rows
(scatter is free). Inside a batch, vertices are ordered as their consumers will read them, so that a
gather is a view wherever its rows follow one another; only the rest is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.errors import ScheduleError
from harness.machine.compiled import compiled
from harness.values.graph import Graph, MiniBatch
from harness.values.instances import IntArray, int_array
from harness.values.schedule import Schedule

Index = NDArray[np.int64]
NOT_CONTIGUOUS = -1
EMPTY = np.zeros(0, dtype=np.int64)
NO_ROUNDS = int_array([])


@dataclass(frozen=True, eq=False, slots=True)
class Gather:
    """The child rows that one type reads, row by row of the type, slots side by side.

    index (n * n_slots,): rows of the children's state. runs (n_batches + 1,): of every batch the
    first row where all its rows follow one another, else NOT_CONTIGUOUS; the last: the same for all
    batches at once.
    edge_start (n + 1,): where each vertex's edges begin, for gathers of any number of children
    (empty for gathers by slot).
    """

    index: Index
    runs: Index
    edge_start: Index


@dataclass(frozen=True, eq=False, slots=True)
class TypeRows:
    """The vertices of one type in execution order.

    vertices (n,), starts (n_batches + 1,): batch boundaries. first_row (n_batches,): where each
    batch begins among the rows of the states that this type writes.
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
    """Batches in order, as (type, position among the type's batches) (k, 2), and each type's rows.

    row (n,): row of each vertex among the states of its own type's space.
    """

    batches: IntArray
    types: Mapping[int, TypeRows]
    row: IntArray
    n_rows: tuple[int, ...]


def plan_layout(
    mini_batch: MiniBatch, schedule: Schedule, space_of_type: IntArray, *, reorder: bool
) -> Layout:
    """Choose rows for every vertex.

    "Type" means vertex function from here on: an unbatchable vertex has one too.
    space_of_type (n_types,): types that write the same states share a space, in which rows are
    counted.
    reorder: order each batch as its consumers of the same round read it; otherwise keep the
    policy's order.
    """
    graph = mini_batch.graph
    graph_arrays = (graph.arg_start, graph.args, _rounds(graph), mini_batch.functions)
    row, batches, n_rows, vertices, batch_starts, first_row, counts = _plan(
        schedule.order, schedule.starts, *graph_arrays, space_of_type, reorder
    )
    types, n_vertices, n_batches = {}, 0, 0
    for type_id, (count, n) in enumerate(counts.tolist()):
        if count:
            end, last = n_vertices + n, n_batches + count
            starts = batch_starts[n_batches + type_id : last + type_id + 1]
            rows = TypeRows(vertices[n_vertices:end], starts, first_row[n_batches:last])
            types[type_id] = rows
            n_vertices, n_batches = end, last
    return Layout(batches, types, row, tuple(n_rows.tolist()))


def plan_gather(graph: Graph, layout: Layout, rows: TypeRows, slots: Sequence[int]) -> Gather:
    """Rows that a type's vertices read through the given argument slots, in this order."""
    wanted = np.asarray(slots, dtype=np.int32)
    index, lacking = _slot_rows(rows.vertices, wanted, graph.arg_start, graph.args, layout.row)
    if lacking >= 0:
        name = graph.type_names[graph.types[lacking]]
        raise ScheduleError(
            f"a {name} vertex gathers slot {max(slots)} but has {len(graph.args_of(lacking))}"
            " children; let the model's mini_batch give it as many as its vertex function gathers"
        )
    return Gather(index, contiguous_runs(index, rows.starts, len(wanted)), EMPTY)


def plan_gather_each(graph: Graph, layout: Layout, rows: TypeRows) -> Gather:
    """Rows of all children of a type's vertices, edge by edge."""
    counts = graph.arg_start[rows.vertices + 1] - graph.arg_start[rows.vertices]
    edge_start = np.zeros(rows.n + 1, dtype=np.int64)
    np.cumsum(counts, out=edge_start[1:])
    offsets = np.repeat(graph.arg_start[rows.vertices] - edge_start[:-1], counts)
    index = layout.row[graph.args[offsets + np.arange(edge_start[-1])]].astype(np.int64)
    bounds = edge_start[rows.starts].astype(np.int32)
    return Gather(index, contiguous_runs(index, bounds, 1), edge_start)


def _rounds(graph: Graph) -> IntArray:
    """The round of every vertex, or nothing where there are none."""
    return NO_ROUNDS if graph.rounds is None else graph.rounds


@compiled
def _order_as_read(
    order: IntArray, starts: IntArray, arg_start: IntArray, args: IntArray, rounds: IntArray
) -> IntArray:  # pragma: no cover - compiled
    """Order each batch by the place (position, slot) of its first reader; unread vertices go last.

    Batches are settled from the last to the first, since a reader's place must be known first. Each
    batch keeps a list of the edges that read it; pushing a settled batch's edges to the front, last
    edge first, leaves every list in the order of reading. Readers of a later round are not known
    yet when a batch runs, and so have no say.
    """
    n, n_batches = len(order), len(starts) - 1
    batch_of = np.empty(n, dtype=np.int32)
    for b in range(n_batches):
        for k in range(starts[b], starts[b + 1]):
            batch_of[order[k]] = b
    first_edge = np.full(n_batches, -1, dtype=np.int32)
    next_edge = np.empty(len(args), dtype=np.int32)
    settled = np.zeros(n, dtype=np.bool_)
    result = np.empty(n, dtype=np.int32)
    for b in range(n_batches - 1, -1, -1):
        at = starts[b]
        edge = first_edge[b]
        while edge >= 0:
            vertex = args[edge]
            if not settled[vertex]:
                settled[vertex] = True
                result[at] = vertex
                at += 1
            edge = next_edge[edge]
        for k in range(starts[b], starts[b + 1]):
            if not settled[order[k]]:
                settled[order[k]] = True
                result[at] = order[k]
                at += 1
        for k in range(starts[b + 1] - 1, starts[b] - 1, -1):
            vertex = result[k]
            for edge in range(arg_start[vertex + 1] - 1, arg_start[vertex] - 1, -1):
                if len(rounds) > 0 and rounds[args[edge]] != rounds[vertex]:
                    continue
                child_batch = batch_of[args[edge]]
                next_edge[edge] = first_edge[child_batch]
                first_edge[child_batch] = edge
    return result


@compiled
def _plan(
    order: IntArray,
    starts: IntArray,
    arg_start: IntArray,
    args: IntArray,
    rounds: IntArray,
    types: IntArray,
    space_of_type: IntArray,
    reorder: bool,
) -> tuple[
    IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray
]:  # pragma: no cover - compiled
    """Rows of vertices, batches (k, 2), rows of each space; then type by type: vertices, where
    batches begin and their first rows, and how many batches and vertices (n_types, 2).
    """
    if reorder:
        order = _order_as_read(order, starts, arg_start, args, rounds)
    row, first_row, batches, n_rows = _assign_rows(order, starts, types, space_of_type)
    return row, batches, n_rows, *_group_by_type(order, starts, batches, first_row, space_of_type)


@compiled
def _assign_rows(
    order: IntArray, starts: IntArray, types: IntArray, space_of_type: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:  # pragma: no cover - compiled
    n_batches = len(starts) - 1
    row = np.empty(len(order), dtype=np.int32)
    first_row = np.empty(n_batches, dtype=np.int32)
    batches = np.empty((n_batches, 2), dtype=np.int32)
    n_spaces = 1
    for space in space_of_type:
        n_spaces = max(n_spaces, space + 1)
    used = np.zeros(n_spaces, dtype=np.int32)
    n_batches_of = np.zeros(len(space_of_type), dtype=np.int32)
    for b in range(n_batches):
        type_id = types[order[starts[b]]]
        space = space_of_type[type_id]
        batches[b, 0], batches[b, 1], first_row[b] = type_id, n_batches_of[type_id], used[space]
        n_batches_of[type_id] += 1
        for k in range(starts[b], starts[b + 1]):
            row[order[k]] = used[space]
            used[space] += 1
    return row, first_row, batches, used


@compiled
def _group_by_type(
    order: IntArray,
    starts: IntArray,
    batches: IntArray,
    first_row: IntArray,
    space_of_type: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:  # pragma: no cover - compiled
    """Vertices type by type, the batch boundaries of each type (from 0) and first rows of its
    batches, and its numbers of batches and of vertices.
    """
    n_batches, n_types = len(batches), len(space_of_type)
    counts = np.zeros((n_types, 2), dtype=np.int32)
    for b in range(n_batches):
        counts[batches[b, 0], 0] += 1
        counts[batches[b, 0], 1] += starts[b + 1] - starts[b]
    first_batch, first_vertex = np.zeros(n_types, np.int32), np.zeros(n_types, np.int32)
    for t in range(1, n_types):
        first_batch[t] = first_batch[t - 1] + counts[t - 1, 0]
        first_vertex[t] = first_vertex[t - 1] + counts[t - 1, 1]
    used = np.zeros(n_types, dtype=np.int32)
    vertices = np.empty(len(order), dtype=np.int32)
    boundaries = np.zeros(n_batches + n_types, dtype=np.int32)
    rows = np.empty(n_batches, dtype=np.int32)
    for b in range(n_batches):
        t = batches[b, 0]
        place = first_batch[t] + batches[b, 1]
        for k in range(starts[b], starts[b + 1]):
            vertices[first_vertex[t] + used[t]] = order[k]
            used[t] += 1
        boundaries[place + t + 1] = used[t]
        rows[place] = first_row[b]
    return vertices, boundaries, rows, counts


@compiled
def _slot_rows(
    vertices: IntArray, slots: IntArray, arg_start: IntArray, args: IntArray, row: IntArray
) -> tuple[Index, int]:  # pragma: no cover - compiled
    """Row of the child in each slot; also a vertex that lacks one of these children, or -1."""
    index = np.empty(len(vertices) * len(slots), dtype=np.int64)
    at = 0
    for vertex in vertices:
        for slot in slots:
            if arg_start[vertex] + slot >= arg_start[vertex + 1]:
                return index, vertex
            index[at] = row[args[arg_start[vertex] + slot]]
            at += 1
    return index, -1


@compiled
def contiguous_runs(
    index: Index, bounds: IntArray, n_parts: int
) -> Index:  # pragma: no cover - compiled
    """First index of each run where it counts up by one (else NOT_CONTIGUOUS), last of all runs."""
    runs = np.empty(len(bounds), dtype=np.int64)
    runs[-1] = index[0] if len(index) else 0
    for b in range(len(bounds) - 1):
        start, end = bounds[b] * n_parts, bounds[b + 1] * n_parts
        runs[b] = index[start] if end > start else 0
        for k in range(start, end):
            if index[k] != index[start] + k - start:
                runs[b] = NOT_CONTIGUOUS
            if index[k] != index[0] + k:
                runs[-1] = NOT_CONTIGUOUS
    return runs
