"""All arrays of a mini-batch's layout in one compiled call: see fields.py for which they are.

Python and NumPy took longer to make them one by one than a small mini-batch takes to compute.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.engine.rows.counting import N_COUNTS, N, count, count_outputs, place
from harness.engine.rows.field_filling import field, fill_in, fill_outputs, pull
from harness.engine.rows.fields import N_OF_FUNCTION, N_OF_GATHER, ORDER, VERTICES, Index
from harness.engine.rows.row_order import assign_rows, order_as_read, sort_outputs
from harness.values.arrays import Flags, IntArray, IntTable, LongTable

NO_VERTEX = -2


@compiled
def fill(
    order: IntArray,
    starts: IntArray,
    arg_start: IntArray,
    args: IntArray,
    rounds: IntArray,
    functions: IntArray,
    base: int,
    row: IntArray,
    used: Index,
    space_of_type: IntArray,
    gathers: IntTable,
    slots: IntArray,
    pulls: IntTable,
    pulled: IntArray,
    outputs: IntArray,
    output_ids: IntArray,
    output_pulled: IntArray,
    n_outputs: int,
    reorder: bool,
) -> tuple[Index, LongTable, LongTable, Flags, IntTable, int]:
    """Choose rows of a mini-batch's vertices, into row[base:], and fill all arrays of its layout.

    Returns the arrays one behind the other; of each field where it begins, and its length; counts
    (n_functions, N_COUNTS); which functions have rows; batches in order (see Layout); and FILLED,
    or NO_VERTEX where an output reads none that there is, or a vertex that lacks a child that it
    gathers.

    order, starts: of the schedule. arg_start, args, rounds, functions: of its graph. base: vertices
    of earlier rounds, which args and outputs count, too. used: see assign_rows. gathers, slots,
    pulls, n_outputs: see Fields. pulled: of each of Fields.names, one number a vertex;
    output_pulled: one an output, or nothing where outputs pull what their vertices do.
    """
    n, n_types = len(functions), len(space_of_type)
    for vertex in outputs:
        if vertex < 0 or vertex >= base + n:
            nothing = np.empty((0, N_COUNTS), dtype=np.int64)
            absent = np.zeros(0, dtype=np.bool_)
            none = np.empty((0, 2), dtype=np.int32)
            return np.empty(0, dtype=np.int64), nothing, nothing, absent, none, NO_VERTEX
    if reorder:
        order = order_as_read(order, starts, arg_start, args, rounds, base)
    batches, first_row = assign_rows(order, starts, functions, space_of_type, used, row[base:])
    read, first_read = sort_outputs(outputs, output_ids, n_outputs, row)
    counts = np.zeros((n_types + n_outputs, N_COUNTS), dtype=np.int64)
    count(order, starts, batches, first_row, arg_start, counts)
    for k in range(n_outputs):
        mine = read[first_read[k] : first_read[k + 1]]
        count_outputs(mine, outputs, rounds, counts[n_types + k])
    bounds = place(counts, n_types, gathers, pulls)
    values = np.empty(bounds[-1, 0] + bounds[-1, 1], dtype=np.int64)
    for k in range(n_outputs):
        mine = read[first_read[k] : first_read[k + 1]]
        fill_outputs(values, bounds, n_types + k, mine, outputs, rounds)
    lacking = fill_in(
        values, bounds, counts, n_types, order, starts, batches, first_row, gathers, slots,
        arg_start, args, row,
    )  # fmt: skip
    first = N_OF_FUNCTION * len(counts) + N_OF_GATHER * len(gathers)
    for p in range(len(pulls)):
        function, name, found = pulls[p, 0], pulls[p, 1], field(values, bounds, first + p)
        if function >= n_types and len(output_pulled) > 0:
            rows = field(values, bounds, N_OF_FUNCTION * function + ORDER)
            pull(found, output_pulled, name * len(outputs), rows)
        else:
            rows = field(values, bounds, N_OF_FUNCTION * function + VERTICES)
            pull(found, pulled, name * n, rows)
    present, in_order = _in_order(counts, n_types, batches)
    return values, bounds, counts, present, in_order, lacking


@helper
def _in_order(counts: LongTable, n_types: int, batches: IntTable) -> tuple[Flags, IntTable]:
    """Return which functions have rows, and Layout.in_order."""
    present = np.empty(len(counts), dtype=np.bool_)
    n_read = 0
    for f in range(len(counts)):
        present[f] = counts[f, N] > 0
        if f >= n_types and present[f]:
            n_read += 1
    n = len(batches)
    found = np.empty((2 * (n + n_read), 2), dtype=np.int32)
    at, back = n, n + n_read
    for f in range(n_types, len(counts)):
        if present[f]:
            for k in (at, back):
                found[k, 0], found[k, 1] = n_types - 1 - f, 0
            at, back = at + 1, back + 1
    for b in range(n):
        for column in range(2):
            found[b, column] = batches[b, column]
            found[len(found) - 1 - b, column] = batches[b, column]
    return present, found
