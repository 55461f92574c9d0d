"""Which row every vertex takes: batches one after the other, each in the order of its readers.

And how much every function has, by which memory is made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.compiler.registry import helper
from harness.values.arrays import IntArray, IntTable, Longs, LongTable

# What is counted of each function. AT_ONCE: the most rows that a stage takes which runs batch by
# batch; FOLLOWS: whether its batches follow one another among the rows of states.
N, AT_ONCE, N_EDGES, N_BATCHES, LARGEST, FOLLOWS = range(6)
N_COUNTS = 6


class Source(NamedTuple):
    """A schedule and its graph, and where rows of vertices go.

    order, starts: of the schedule. arg_start, args, rounds (or nothing), functions: of the graph.
    spaces: see plan_layout. base: vertices of earlier rounds, which args count, too. row: of all
    these, and room for those to come. used (n_spaces,): rows of each space that are taken.
    """

    order: IntArray
    starts: IntArray
    arg_start: IntArray
    args: IntArray
    rounds: IntArray
    functions: IntArray
    spaces: IntArray
    base: int
    row: IntArray
    used: Longs


class Outputs(NamedTuple):
    """Vertices that are read behind the last batch.

    pulled: of each of Fields.names one number an output, or nothing where outputs pull what their
    vertices do.
    """

    vertices: IntArray
    pulled: IntTable


class Batches(NamedTuple):
    """order, starts: of the vertices. table (k, 2): see Layout. first_row (k,): of states."""

    order: IntArray
    starts: IntArray
    table: IntTable
    first_row: IntArray


@helper
def assign_rows(one: Source, counts: LongTable, reorder: bool) -> Batches:
    """Give every vertex its row behind those that are used, and count what functions have.

    Batches come one after the other, each in the order of its readers where `reorder`.
    """
    order, starts = one.order, one.starts
    if reorder:
        order = _order_as_read(one)
    n_batches = len(starts) - 1
    first_row = np.empty(n_batches, dtype=np.int32)
    table = np.empty((n_batches, 2), dtype=np.int32)
    n_batches_of = np.zeros(len(one.spaces), dtype=np.int32)
    row, used = one.row[one.base :], one.used
    for b in range(n_batches):
        type_id = one.functions[order[starts[b]]]
        space = one.spaces[type_id]
        table[b, 0], table[b, 1], first_row[b] = type_id, n_batches_of[type_id], used[space]
        n_batches_of[type_id] += 1
        for k in range(starts[b], starts[b + 1]):
            row[order[k]] = used[space]
            used[space] += 1
    batches = Batches(order, starts, table, first_row)
    _count(batches, one.arg_start, counts)
    return batches


@helper
def _order_as_read(one: Source) -> IntArray:
    """Order each batch by the place (position, slot) of its first reader; unread vertices go last.

    Batches are settled from the last to the first, since a reader's place must be known first. Each
    batch keeps a list of the edges that read it; pushing a settled batch's edges to the front, last
    edge first, leaves every list in the order of reading. Readers of a later round are not known
    yet when a batch runs, and so have no say.
    """
    order, starts, arg_start, args = one.order, one.starts, one.arg_start, one.args
    rounds, base = one.rounds, one.base
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
                if child < 0 or (len(rounds) > 0 and rounds[child] != rounds[vertex]):
                    continue
                child_batch = batch_of[child]
                next_edge[edge] = first_edge[child_batch]
                first_edge[child_batch] = edge
    return result


@helper
def _add_up(numbers: IntArray) -> None:
    """Let each number be the sum of those up to it."""
    for k in range(1, len(numbers)):
        numbers[k] += numbers[k - 1]


@helper
def sort_outputs(vertices: IntArray, row: IntArray) -> IntArray:
    """Return which outputs are read in the order of their rows, one of which may be read twice."""
    n = len(vertices)
    highest = 0
    for k in range(n):
        highest = max(highest, row[vertices[k]])
    next_at = np.zeros(highest + 2, dtype=np.int32)
    for k in range(n):
        next_at[row[vertices[k]] + 1] += 1
    _add_up(next_at)
    by_row = np.empty(n, dtype=np.int32)
    for k in range(n):
        r = row[vertices[k]]
        by_row[next_at[r]] = k
        next_at[r] += 1
    return by_row


@helper
def _count(batches: Batches, arg_start: IntArray, counts: LongTable) -> None:
    """Count what every vertex function has; see N, N_BATCHES, ..."""
    order, starts, table, first_row = batches
    shift = np.zeros(len(counts), dtype=np.int64)
    for f in range(len(counts)):
        counts[f, FOLLOWS] = 1  # as those do that have no batch
    for b in range(len(table)):
        t, size = table[b, 0], starts[b + 1] - starts[b]
        own = counts[t]
        if own[N_BATCHES] == 0:
            shift[t] = first_row[b]
        elif first_row[b] - own[N] != shift[t]:
            own[FOLLOWS] = 0
        own[N_BATCHES] += 1
        own[N] += size
        own[LARGEST] = own[AT_ONCE] = max(own[LARGEST], size)
        for k in range(starts[b], starts[b + 1]):
            own[N_EDGES] += arg_start[order[k] + 1] - arg_start[order[k]]


@helper
def count_outputs(mine: IntArray, outputs: IntArray, rounds: IntArray, own: Longs) -> None:
    """Count what the function of outputs has: a batch a round in which it reads anything."""
    size = 0
    for k in range(len(mine)):
        of, before = outputs[mine[k]], outputs[mine[max(k - 1, 0)]]
        if k == 0 or (len(rounds) > 0 and rounds[of] != rounds[before]):
            own[N_BATCHES] += 1
            size = 0
        size += 1
        own[LARGEST] = max(own[LARGEST], size)
    own[N] = own[AT_ONCE] = len(mine)
