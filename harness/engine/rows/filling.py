"""Computation of all arrays of a layout in one compiled call; fields.py defines the arrays.

With one Python and NumPy call per array, this took longer than computing a small mini-batch. Graph
segments of a program that is still running take the same steps in reused memory (live_code.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.rows.fields import (
    EDGE_BOUNDS,
    EDGE_START,
    EVERY_CHILD,
    FIRST_ROW,
    INDEX,
    N_OF_FUNCTION,
    N_OF_GATHER,
    NOT_CONTIGUOUS,
    ORDER,
    OUTPUT,
    ROWS,
    RUNS,
    SEGMENTS,
    STARTS,
    VERTICES,
    FieldArrays,
)
from dynbatch.harness.engine.rows.row_order import (
    N_BATCHES,
    N_COUNTS,
    N_EDGES,
    Batches,
    N,
    Outputs,
    Source,
    assign_rows,
    count_outputs,
    sort_outputs,
)
from dynbatch.harness.values.arrays import Flags, IntArray, IntTable, Longs, LongTable

FILLED, NO_VERTEX = -1, -2


class Arrays(NamedTuple):
    """Arrays of a layout in compiled code, described by the attributes of Layout."""

    values: Longs
    bounds: LongTable
    counts: LongTable


@compiled
def fill(
    source: Source, pulled: IntTable, outputs: Outputs, fields: FieldArrays, reorder: bool
) -> tuple[Longs, LongTable, LongTable, Flags, IntTable, int]:
    """Choose rows for a mini-batch's vertices and fill all arrays of its layout.

    Args:
        source: The chosen rows are written to its row[base:].
        pulled: For each of Fields.names, one number per vertex.

    Returns:
        The concatenated arrays; the start and length of each; counts (n_functions, N_COUNTS); flags
        of the functions that have rows; Layout.in_order; and a status. The status is FILLED,
        NO_VERTEX if an output reads a vertex that does not exist, or the number of a vertex
        that has no child in a slot that it gathers.
    """
    n_types = len(source.spaces)
    for vertex in outputs.vertices:
        if vertex < 0 or vertex >= source.base + len(source.functions):
            nothing = np.empty((0, N_COUNTS), dtype=np.int64)
            absent = np.zeros(0, dtype=np.bool_)
            none = np.empty((0, 2), dtype=np.int32)
            return np.empty(0, dtype=np.int64), nothing, nothing, absent, none, NO_VERTEX
    counts = np.zeros((n_types + fields.has_output, N_COUNTS), dtype=np.int64)
    batches = assign_rows(source, counts, reorder)
    n_read = len(outputs.vertices) if fields.has_output else 0
    read = sort_outputs(outputs.vertices[:n_read], source.row)
    if fields.has_output:
        count_outputs(read, outputs.vertices, source.segments, counts[n_types])
    bounds = place_fields(counts, n_types, fields)
    values = np.empty(bounds[-1, 0] + bounds[-1, 1], dtype=np.int64)
    arrays = Arrays(values, bounds, counts)
    if fields.has_output:
        _fill_outputs(arrays, n_types, read, outputs.vertices, source.segments)
    lacking = fill_fields(arrays, source, batches, fields)
    fill_pulls(arrays, fields, n_types, pulled, 0, outputs.pulled)
    present, in_order = _order_batches(counts, n_types, batches.table)
    return values, bounds, counts, present, in_order, lacking


@helper
def place_fields(counts: LongTable, n_types: int, fields: FieldArrays) -> LongTable:
    """Return the start and length of each field (n_fields + 1, 2); the last field is empty."""
    gathers, pulls, n_functions = fields.gathers, fields.pulls, len(counts)
    n_fields = N_OF_FUNCTION * n_functions + N_OF_GATHER * len(gathers) + len(pulls)
    bounds = np.zeros((n_fields + 1, 2), dtype=np.int64)
    for f in range(n_functions):
        n, n_batches, at = counts[f, N], counts[f, N_BATCHES], N_OF_FUNCTION * f
        bounds[at + ROWS, 1] = 1
        if n > 0:
            bounds[at + VERTICES, 1], bounds[at + STARTS, 1] = n, n_batches + 1
            bounds[at + FIRST_ROW, 1] = n_batches
            if f >= n_types:
                bounds[at + ORDER, 1], bounds[at + SEGMENTS, 1] = n, n_batches
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


@helper
def _select_field(arrays: Arrays, k: int) -> Longs:
    """Return the array of field k."""
    return arrays.values[arrays.bounds[k, 0] : arrays.bounds[k, 0] + arrays.bounds[k, 1]]


@helper
def fill_fields(arrays: Arrays, source: Source, batches: Batches, fields: FieldArrays) -> int:
    """Fill the rows and the gather indices of every function.

    Returns:
        FILLED, or the number of a vertex that has no child in a slot that it gathers.
    """
    _fill_functions(arrays, batches)
    n_types, first = len(source.spaces), N_OF_FUNCTION * len(arrays.counts)
    for g in range(len(fields.gathers)):
        function, slot, n_slots = fields.gathers[g, 0], fields.gathers[g, 1], fields.gathers[g, 2]
        at, base = first + N_OF_GATHER * g, N_OF_FUNCTION * function
        index, vertices = _select_field(arrays, at + INDEX), _select_field(arrays, base + VERTICES)
        begins, n_parts = _select_field(arrays, base + STARTS), 1
        if function >= n_types:
            for k in range(len(vertices)):
                index[k] = source.row[vertices[k]]
        elif n_slots == EVERY_CHILD:
            _fill_each(arrays, at, vertices, begins, source)
            begins = _select_field(arrays, at + EDGE_BOUNDS)
        else:
            mine, n_parts = fields.slots[slot : slot + n_slots], n_slots
            lacking = _fill_slots(index, vertices, mine, source)
            if lacking >= 0:
                return lacking
        _find_runs(index, begins, n_parts, _select_field(arrays, at + RUNS))
    return FILLED


@helper
def fill_pulls(
    arrays: Arrays,
    fields: FieldArrays,
    n_types: int,
    pulled: IntTable,
    first: int,
    of_outputs: IntTable,
) -> None:
    """Fill the numbers that rows pull, from `pulled` or from the outputs' own pulls.

    Args:
        first: The column of `pulled` that belongs to the first vertex.
        of_outputs: Numbers that only outputs pull; if empty, outputs pull the numbers of their
            vertices.
    """
    first_field = N_OF_FUNCTION * len(arrays.counts) + N_OF_GATHER * len(fields.gathers)
    for p in range(len(fields.pulls)):
        function, name = fields.pulls[p, 0], fields.pulls[p, 1]
        numbers, base = _select_field(arrays, first_field + p), N_OF_FUNCTION * function
        if function >= n_types and len(of_outputs) > 0:
            _pull(numbers, of_outputs[name], 0, _select_field(arrays, base + ORDER))
        else:
            _pull(numbers, pulled[name], first, _select_field(arrays, base + VERTICES))


@helper
def _pull(out: Longs, numbers: IntArray, first: int, rows: Longs) -> None:
    """Copy one number per row."""
    for k in range(len(out)):
        out[k] = numbers[first + rows[k]]


@helper
def _fill_functions(arrays: Arrays, batches: Batches) -> None:
    """Fill the vertices of every function in the order of execution, and its batch boundaries."""
    values, bounds, counts = arrays
    order, starts, table, first_row = batches
    used = np.zeros(len(counts), dtype=np.int64)
    for f in range(len(counts)):
        values[bounds[N_OF_FUNCTION * f + ROWS, 0]] = counts[f, N]
        if counts[f, N] > 0:
            values[bounds[N_OF_FUNCTION * f + STARTS, 0]] = 0
    for b in range(len(table)):
        f, position = table[b, 0], table[b, 1]
        at = N_OF_FUNCTION * f
        vertices = bounds[at + VERTICES, 0]
        for k in range(starts[b], starts[b + 1]):
            values[vertices + used[f]] = order[k]
            used[f] += 1
        values[bounds[at + STARTS, 0] + position + 1] = used[f]
        values[bounds[at + FIRST_ROW, 0] + position] = first_row[b]


@helper
def _fill_outputs(
    arrays: Arrays, function: int, mine: IntArray, outputs: IntArray, segments: IntArray
) -> None:
    """Fill the same fields for the function of outputs, in the order of the rows that they read.

    In this order, graph segments follow one another.
    """
    at = N_OF_FUNCTION * function
    vertices, order = _select_field(arrays, at + VERTICES), _select_field(arrays, at + ORDER)
    starts, first_row = _select_field(arrays, at + STARTS), _select_field(arrays, at + FIRST_ROW)
    of_batches = _select_field(arrays, at + SEGMENTS)
    first_row[:] = 0
    _select_field(arrays, at + ROWS)[0] = len(mine)
    b = 0
    for k in range(len(mine)):
        vertices[k], order[k] = outputs[mine[k]], mine[k]
        segment = segments[vertices[k]] if len(segments) > 0 else 0
        if b == 0 or of_batches[b - 1] != segment:
            starts[b], of_batches[b] = k, segment
            b += 1
    if len(mine) > 0:
        starts[b] = len(mine)


@helper
def _fill_slots(index: Longs, vertices: Longs, slots: IntArray, source: Source) -> int:
    """Fill the rows of the children in each slot.

    Returns:
        FILLED, or the number of a vertex that has no child in one of these slots.
    """
    arg_start, at = source.arg_start, 0
    for vertex in vertices:
        for slot in slots:
            if arg_start[vertex] + slot >= arg_start[vertex + 1]:
                return int(vertex)
            index[at] = source.row[source.args[arg_start[vertex] + slot]]
            at += 1
    return FILLED


@helper
def _fill_each(arrays: Arrays, at: int, vertices: Longs, begins: Longs, source: Source) -> None:
    """Fill the rows of all children, one per edge, and the first edges of vertices and batches."""
    index, edge_start = _select_field(arrays, at + INDEX), _select_field(arrays, at + EDGE_START)
    edge_bounds = _select_field(arrays, at + EDGE_BOUNDS)
    n_edges = 0
    for k in range(len(vertices)):
        edge_start[k] = n_edges
        for edge in range(source.arg_start[vertices[k]], source.arg_start[vertices[k] + 1]):
            index[n_edges] = source.row[source.args[edge]]
            n_edges += 1
    if len(edge_start) > 0:
        edge_start[len(vertices)] = n_edges
    for b in range(len(begins)):
        edge_bounds[b] = edge_start[begins[b]]


@helper
def _find_runs(index: Longs, bounds: Longs, n_parts: int, runs: Longs) -> None:
    """Fill the first index of each batch whose indices are consecutive, else NOT_CONTIGUOUS.

    The last entry of `runs` is the same for all batches together.
    """
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


@helper
def _order_batches(counts: LongTable, n_types: int, batches: IntTable) -> tuple[Flags, IntTable]:
    """Return flags of the functions that have rows, and Layout.in_order."""
    present = np.empty(len(counts), dtype=np.bool_)
    n, n_read = len(batches), 0
    for f in range(len(counts)):
        present[f] = counts[f, N] > 0
        n_read += f == n_types and present[f]
    in_order = np.empty((2 * (n + n_read), 2), dtype=np.int32)
    for k in range(n, n + 2 * n_read):
        in_order[k, 0], in_order[k, 1] = OUTPUT, 0
    for b in range(n):
        for column in range(2):
            in_order[b, column] = batches[b, column]
            in_order[len(in_order) - 1 - b, column] = batches[b, column]
    return present, in_order
