"""Assignment of rows to vertices, batch by batch, and counts of rows for allocating memory.

Inside a batch, the order of reading determines the order of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.values.arrays import IntArray, IntTable, Longs, LongTable

# Counts of each function. AT_ONCE: the largest number of rows in one call of a stage that runs
# batch by batch; FOLLOWS: 1 if its batches are consecutive among the rows of states.
N, AT_ONCE, N_EDGES, N_BATCHES, FOLLOWS = range(5)
N_COUNTS = 5


class Source(NamedTuple):
    """A schedule, its graph, and the rows that are already occupied.

    Attributes:
        order: Vertices in the order of the schedule.
        starts: Batch boundaries in `order`.
        arg_start: First argument of each vertex in `args`.
        args: Arguments of all vertices; they count the vertices of earlier segments, too.
        segments: The graph segment of each vertex; empty if there is one segment.
        functions: The vertex function of each vertex.
        spaces: See plan_layout.
        base: The number of vertices of earlier segments.
        row: The rows of these vertices, followed by space for the new ones.
        used: (n_spaces,), the number of occupied rows of each space.
    """

    order: IntArray
    starts: IntArray
    arg_start: IntArray
    args: IntArray
    segments: IntArray
    functions: IntArray
    spaces: IntArray
    base: int
    row: IntArray
    used: Longs


class Outputs(NamedTuple):
    """Vertices that are read after the last batch.

    Attributes:
        pulled: For each of Fields.names, one number per output; empty if outputs pull the numbers
            of their vertices.
    """

    vertices: IntArray
    pulled: IntTable


class Batches(NamedTuple):
    """Batches with their rows.

    Attributes:
        order: Vertices in the order of their rows.
        starts: Batch boundaries in `order`.
        table: (k, 2), see Layout.batches.
        first_row: (k,), the first row of each batch among the rows of states.
    """

    order: IntArray
    starts: IntArray
    table: IntTable
    first_row: IntArray


@helper
def assign_rows(source: Source, counts: LongTable, reorder: bool) -> Batches:
    """Assign every vertex a row after the occupied ones, and count the rows of each function.

    Args:
        reorder: Order each batch as its consumers read it.
    """
    order, starts = source.order, source.starts
    if reorder:
        order = _order_as_read(source)
    n_batches = len(starts) - 1
    first_row = np.empty(n_batches, dtype=np.int32)
    table = np.empty((n_batches, 2), dtype=np.int32)
    n_batches_of = np.zeros(len(source.spaces), dtype=np.int32)
    row, used = source.row[source.base :], source.used
    for b in range(n_batches):
        type_id = source.functions[order[starts[b]]]
        space = source.spaces[type_id]
        table[b, 0], table[b, 1], first_row[b] = type_id, n_batches_of[type_id], used[space]
        n_batches_of[type_id] += 1
        for k in range(starts[b], starts[b + 1]):
            row[order[k]] = used[space]
            used[space] += 1
    batches = Batches(order, starts, table, first_row)
    _count(batches, source.arg_start, counts)
    return batches


@helper
def _order_as_read(source: Source) -> IntArray:
    """Order each batch by the position and slot of each vertex's first reader.

    Vertices without a reader come last. Batches are ordered from the last to the first, because the
    position of a reader must be known first. Each batch has a list of the edges that read it. Edges
    of an ordered batch are pushed to the front, last edge first, so that every list is in the order
    of reading. Readers in a later graph segment do not count, because they are unknown when a batch
    runs.
    """
    order, starts, arg_start, args = source.order, source.starts, source.arg_start, source.args
    segments, base = source.segments, source.base
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
            vertex = args[edge] - base
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
                child = args[edge] - base
                if child < 0 or (len(segments) > 0 and segments[child] != segments[vertex]):
                    continue
                child_batch = batch_of[child]
                next_edge[edge] = first_edge[child_batch]
                first_edge[child_batch] = edge
    return result


@helper
def sort_outputs(vertices: IntArray, row: IntArray) -> IntArray:
    """Return the indices of outputs in the order of the rows that they read; rows may repeat."""
    n = len(vertices)
    highest = 0
    for k in range(n):
        highest = max(highest, row[vertices[k]])
    next_at = np.zeros(highest + 2, dtype=np.int32)
    for k in range(n):
        next_at[row[vertices[k]] + 1] += 1
    for r in range(highest + 1):
        next_at[r + 1] += next_at[r]
    by_row = np.empty(n, dtype=np.int32)
    for k in range(n):
        r = row[vertices[k]]
        by_row[next_at[r]] = k
        next_at[r] += 1
    return by_row


@helper
def _count(batches: Batches, arg_start: IntArray, counts: LongTable) -> None:
    """Count the batches, rows and edges of every vertex function, see N, N_BATCHES, ...."""
    order, starts, table, first_row = batches
    shift = np.zeros(len(counts), dtype=np.int64)
    for f in range(len(counts)):
        counts[f, FOLLOWS] = 1  # true for functions without batches, too
    for b in range(len(table)):
        t, size = table[b, 0], starts[b + 1] - starts[b]
        own = counts[t]
        if own[N_BATCHES] == 0:
            shift[t] = first_row[b]
        elif first_row[b] - own[N] != shift[t]:
            own[FOLLOWS] = 0
        own[N_BATCHES] += 1
        own[N] += size
        own[AT_ONCE] = max(own[AT_ONCE], size)
        for k in range(starts[b], starts[b + 1]):
            own[N_EDGES] += arg_start[order[k] + 1] - arg_start[order[k]]


@helper
def count_outputs(mine: IntArray, outputs: IntArray, segments: IntArray, own: Longs) -> None:
    """Count the rows of the output function; it has one batch per graph segment with outputs.

    Its backward stage may run all rows in one call.
    """
    for k in range(len(mine)):
        vertex, before = outputs[mine[k]], outputs[mine[max(k - 1, 0)]]
        if k == 0 or (len(segments) > 0 and segments[vertex] != segments[before]):
            own[N_BATCHES] += 1
    own[N] = own[AT_ONCE] = len(mine)
