"""How much every function has in a mini-batch, and so where each array of a layout begins."""

from __future__ import annotations

import numpy as np

from harness.compiler.registry import helper
from harness.engine.rows.fields import (
    EDGE_BOUNDS,
    EDGE_START,
    EVERY_CHILD,
    FIRST_ROW,
    INDEX,
    N_OF_FUNCTION,
    N_OF_GATHER,
    ORDER,
    ROUNDS,
    ROWS,
    RUNS,
    STARTS,
    VERTICES,
    Index,
)
from harness.values.arrays import IntArray, IntTable, LongTable

# What is counted of each function. AT_ONCE: the most rows that a stage takes which runs batch by
# batch; FOLLOWS: whether its batches follow one another among the rows of states.
N, AT_ONCE, N_EDGES, N_BATCHES, LARGEST, FOLLOWS = range(6)
N_COUNTS = 6


@helper
def count(
    order: IntArray,
    starts: IntArray,
    batches: IntTable,
    first_row: IntArray,
    arg_start: IntArray,
    counts: LongTable,
) -> None:
    """Count what every vertex function has; see N, N_BATCHES, ..."""
    shift = np.zeros(len(counts), dtype=np.int64)
    for f in range(len(counts)):
        counts[f, FOLLOWS] = 1  # as those do that have no batch
    for b in range(len(batches)):
        t, size = batches[b, 0], starts[b + 1] - starts[b]
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
def count_outputs(mine: IntArray, outputs: IntArray, rounds: IntArray, own: Index) -> None:
    """Count what one function of outputs has: a batch a round in which it reads anything."""
    size = 0
    for k in range(len(mine)):
        of, before = outputs[mine[k]], outputs[mine[max(k - 1, 0)]]
        if k == 0 or (len(rounds) > 0 and rounds[of] != rounds[before]):
            own[N_BATCHES] += 1
            size = 0
        size += 1
        own[LARGEST] = max(own[LARGEST], size)
    own[N] = own[AT_ONCE] = len(mine)


@helper
def place(counts: LongTable, n_types: int, gathers: IntTable, pulls: IntTable) -> LongTable:
    """Return where each field begins, and its length (n_fields + 1, 2); the last one is empty."""
    n_functions = len(counts)
    n_fields = N_OF_FUNCTION * n_functions + N_OF_GATHER * len(gathers) + len(pulls)
    bounds = np.zeros((n_fields + 1, 2), dtype=np.int64)
    for f in range(n_functions):
        n, n_batches, at = counts[f, N], counts[f, N_BATCHES], N_OF_FUNCTION * f
        bounds[at + ROWS, 1] = 1
        if n > 0:
            bounds[at + VERTICES, 1], bounds[at + STARTS, 1] = n, n_batches + 1
            bounds[at + FIRST_ROW, 1] = n_batches
            if f >= n_types:
                bounds[at + ORDER, 1], bounds[at + ROUNDS, 1] = n, n_batches
    first = N_OF_FUNCTION * n_functions
    for g in range(len(gathers)):
        f, n_slots, at = gathers[g, 0], gathers[g, 2], first + N_OF_GATHER * g
        n, n_batches = counts[f, N], counts[f, N_BATCHES]
        if n > 0:
            bounds[at + RUNS, 1] = n_batches + 1
            bounds[at + INDEX, 1] = counts[f, N_EDGES] if n_slots == EVERY_CHILD else n * n_slots
            if n_slots == EVERY_CHILD:
                bounds[at + EDGE_START, 1], bounds[at + EDGE_BOUNDS, 1] = n + 1, n_batches + 1
    first += N_OF_GATHER * len(gathers)
    for p in range(len(pulls)):
        bounds[first + p, 1] = counts[pulls[p, 0], N]
    for k in range(n_fields):
        bounds[k + 1, 0] = bounds[k, 0] + bounds[k, 1]
    return bounds
