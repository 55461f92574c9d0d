"""The arrays of a mini-batch's layout, each filled into its place: see fields.py."""

from __future__ import annotations

import numpy as np

from harness.compiler.registry import helper
from harness.engine.rows.counting import N
from harness.engine.rows.fields import (
    EDGE_BOUNDS,
    EDGE_START,
    EVERY_CHILD,
    FIRST_ROW,
    INDEX,
    N_OF_FUNCTION,
    N_OF_GATHER,
    NOT_CONTIGUOUS,
    ORDER,
    ROUNDS,
    ROWS,
    RUNS,
    STARTS,
    VERTICES,
    Index,
)
from harness.values.arrays import IntArray, IntTable, LongTable

FILLED = -1


@helper
def fill_in(
    values: Index,
    bounds: LongTable,
    counts: LongTable,
    n_types: int,
    order: IntArray,
    starts: IntArray,
    batches: IntTable,
    first_row: IntArray,
    gathers: IntTable,
    slots: IntArray,
    arg_start: IntArray,
    args: IntArray,
    row: IntArray,
) -> int:
    """Fill what says where vertices are, and what they gather; returns as `fill` does."""
    _fill_functions(values, bounds, counts, order, starts, batches, first_row)
    first = N_OF_FUNCTION * len(counts)
    return _fill_gathers(values, bounds, first, gathers, slots, n_types, arg_start, args, row)


@helper
def fill_pulls(
    values: Index,
    bounds: LongTable,
    first: int,
    pulls: IntTable,
    pulled: IntArray,
    stride: int,
    base: int,
) -> None:
    """Fill what vertices pull, no outputs among them.

    first: field of the first. pulled: of each name that pulls count `stride` numbers, of which
    those of these vertices begin at `base`.
    """
    for p in range(len(pulls)):
        function, name = pulls[p, 0], pulls[p, 1]
        rows = field(values, bounds, N_OF_FUNCTION * function + VERTICES)
        pull(field(values, bounds, first + p), pulled, name * stride + base, rows)


@helper
def pull(found: Index, numbers: IntArray, first: int, rows: Index) -> None:
    """Fill one number a row."""
    for k in range(len(found)):
        found[k] = numbers[first + rows[k]]


@helper
def _fill_gathers(
    values: Index,
    bounds: LongTable,
    first: int,
    gathers: IntTable,
    slots: IntArray,
    n_types: int,
    arg_start: IntArray,
    args: IntArray,
    row: IntArray,
) -> int:
    """Fill rows of children; returns a vertex that lacks one, or FILLED.

    first: field of the first.
    """
    for g in range(len(gathers)):
        function, slot, n_slots = gathers[g, 0], gathers[g, 1], gathers[g, 2]
        at, of = first + N_OF_GATHER * g, N_OF_FUNCTION * function
        index, vertices = field(values, bounds, at + INDEX), field(values, bounds, of + VERTICES)
        begins, n_parts = field(values, bounds, of + STARTS), 1
        if function >= n_types:
            for k in range(len(vertices)):
                index[k] = row[vertices[k]]
        elif n_slots == EVERY_CHILD:
            _fill_each(values, bounds, at, vertices, begins, arg_start, args, row)
            begins = field(values, bounds, at + EDGE_BOUNDS)
        else:
            mine, n_parts = slots[slot : slot + n_slots], n_slots
            lacking = _fill_slots(index, vertices, mine, arg_start, args, row)
            if lacking >= 0:
                return lacking
        _find_runs(index, begins, n_parts, field(values, bounds, at + RUNS))
    return FILLED


@helper
def field(values: Index, bounds: LongTable, k: int) -> Index:
    """Return one array."""
    return values[bounds[k, 0] : bounds[k, 0] + bounds[k, 1]]


@helper
def _fill_functions(
    values: Index,
    bounds: LongTable,
    counts: LongTable,
    order: IntArray,
    starts: IntArray,
    batches: IntTable,
    first_row: IntArray,
) -> None:
    """Fill vertices of every function in order of execution, and where its batches begin."""
    used = np.zeros(len(counts), dtype=np.int64)
    for f in range(len(counts)):
        values[bounds[N_OF_FUNCTION * f + ROWS, 0]] = counts[f, N]
        if counts[f, N] > 0:
            values[bounds[N_OF_FUNCTION * f + STARTS, 0]] = 0
    for b in range(len(batches)):
        f, position = batches[b, 0], batches[b, 1]
        at = N_OF_FUNCTION * f
        vertices = bounds[at + VERTICES, 0]
        for k in range(starts[b], starts[b + 1]):
            values[vertices + used[f]] = order[k]
            used[f] += 1
        values[bounds[at + STARTS, 0] + position + 1] = used[f]
        values[bounds[at + FIRST_ROW, 0] + position] = first_row[b]


@helper
def fill_outputs(
    values: Index,
    bounds: LongTable,
    function: int,
    mine: IntArray,
    outputs: IntArray,
    rounds: IntArray,
) -> None:
    """Fill the same for a function of outputs, in the order of the rows that are read.

    In it one round comes after the other.
    """
    at = N_OF_FUNCTION * function
    vertices, order = field(values, bounds, at + VERTICES), field(values, bounds, at + ORDER)
    starts, first_row = field(values, bounds, at + STARTS), field(values, bounds, at + FIRST_ROW)
    of_batches = field(values, bounds, at + ROUNDS)
    first_row[:] = 0
    values[bounds[at + ROWS, 0]] = len(mine)
    b = 0
    for k in range(len(mine)):
        vertices[k], order[k] = outputs[mine[k]], mine[k]
        round_ = rounds[vertices[k]] if len(rounds) > 0 else 0
        if b == 0 or of_batches[b - 1] != round_:
            starts[b], of_batches[b] = k, round_
            b += 1
    if len(mine) > 0:
        starts[b] = len(mine)


@helper
def _fill_slots(
    index: Index,
    vertices: Index,
    slots: IntArray,
    arg_start: IntArray,
    args: IntArray,
    row: IntArray,
) -> int:
    """Fill rows of the children in each slot; returns a vertex that lacks one, or FILLED."""
    at = 0
    for vertex in vertices:
        for slot in slots:
            if arg_start[vertex] + slot >= arg_start[vertex + 1]:
                return int(vertex)
            index[at] = row[args[arg_start[vertex] + slot]]
            at += 1
    return FILLED


@helper
def _fill_each(
    values: Index,
    bounds: LongTable,
    at: int,
    vertices: Index,
    begins: Index,
    arg_start: IntArray,
    args: IntArray,
    row: IntArray,
) -> None:
    """Fill rows of all children, edge by edge, and where edges of vertices and batches begin."""
    index, edge_start = field(values, bounds, at + INDEX), field(values, bounds, at + EDGE_START)
    edge_bounds = field(values, bounds, at + EDGE_BOUNDS)
    n_edges = 0
    for k in range(len(vertices)):
        edge_start[k] = n_edges
        for edge in range(arg_start[vertices[k]], arg_start[vertices[k] + 1]):
            index[n_edges] = row[args[edge]]
            n_edges += 1
    if len(edge_start) > 0:
        edge_start[len(vertices)] = n_edges
    for b in range(len(begins)):
        edge_bounds[b] = edge_start[begins[b]]


@helper
def _find_runs(index: Index, bounds: Index, n_parts: int, runs: Index) -> None:
    """Fill the first index of each run that counts up by one, else NOT_CONTIGUOUS; last of all."""
    if len(runs) == 0:
        return
    runs[-1] = index[0] if len(index) else 0
    for b in range(len(bounds) - 1):
        start, end = bounds[b] * n_parts, bounds[b + 1] * n_parts
        runs[b] = index[start] if end > start else 0
        for k in range(start, end):
            if index[k] != index[start] + k - start:
                runs[b] = NOT_CONTIGUOUS
            if index[k] != index[0] + k:
                runs[-1] = NOT_CONTIGUOUS
