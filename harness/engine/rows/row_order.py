"""Which row every vertex takes: batches one after the other, each in the order of its readers."""

from __future__ import annotations

import numpy as np

from harness.compiler.registry import helper
from harness.engine.rows.fields import Index
from harness.values.arrays import IntArray, IntTable


@helper
def order_as_read(
    order: IntArray,
    starts: IntArray,
    arg_start: IntArray,
    args: IntArray,
    rounds: IntArray,
    base: int,
) -> IntArray:
    """Order each batch by the place (position, slot) of its first reader; unread vertices go last.

    Batches are settled from the last to the first, since a reader's place must be known first. Each
    batch keeps a list of the edges that read it; pushing a settled batch's edges to the front, last
    edge first, leaves every list in the order of reading. Readers of a later round are not known
    yet when a batch runs, and so have no say. base: arguments below are of what ran before.
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
def assign_rows(
    order: IntArray,
    starts: IntArray,
    functions: IntArray,
    space_of_type: IntArray,
    used: Index,
    row: IntArray,
) -> tuple[IntTable, IntArray]:
    """Give every vertex its row, into `row` (n,), behind those that are used of its space.

    used (n_spaces,): rows of each, which is brought up to date. Returns batches (type id, position)
    (k, 2), and the first row of each.
    """
    n_batches = len(starts) - 1
    first_row = np.empty(n_batches, dtype=np.int32)
    batches = np.empty((n_batches, 2), dtype=np.int32)
    n_batches_of = np.zeros(len(space_of_type), dtype=np.int32)
    for b in range(n_batches):
        type_id = functions[order[starts[b]]]
        space = space_of_type[type_id]
        batches[b, 0], batches[b, 1], first_row[b] = type_id, n_batches_of[type_id], used[space]
        n_batches_of[type_id] += 1
        for k in range(starts[b], starts[b + 1]):
            row[order[k]] = used[space]
            used[space] += 1
    return batches, first_row


@helper
def add_up(numbers: IntArray) -> None:
    """Let each number be the sum of those up to it."""
    for k in range(1, len(numbers)):
        numbers[k] += numbers[k - 1]


@helper
def sort_outputs(
    outputs: IntArray, output_ids: IntArray, n_functions: int, row: IntArray
) -> tuple[IntArray, IntArray]:
    """Sort outputs by function, and those of each in the order of the rows that they read.

    By counting; a row may be read more than once. output_ids: empty where the first function reads
    all. Returns which outputs these are, and where those of each function begin.
    """
    n = len(outputs) if n_functions > 0 else 0
    highest = 0
    for k in range(n):
        highest = max(highest, row[outputs[k]])
    next_at = np.zeros(highest + 2, dtype=np.int32)
    for k in range(n):
        next_at[row[outputs[k]] + 1] += 1
    add_up(next_at)
    by_row = np.empty(n, dtype=np.int32)
    for k in range(n):
        r = row[outputs[k]]
        by_row[next_at[r]] = k
        next_at[r] += 1
    first = np.zeros(n_functions + 1, dtype=np.int32)
    if len(output_ids) == 0:
        first[1:] = n
        return by_row, first
    for k in range(n):
        if output_ids[k] < n_functions:
            first[output_ids[k] + 1] += 1
    add_up(first)
    free = first.copy()
    found = np.empty(first[n_functions], dtype=np.int32)
    for output in by_row:
        if output_ids[output] < n_functions:
            found[free[output_ids[output]]] = output
            free[output_ids[output]] += 1
    return found, first
