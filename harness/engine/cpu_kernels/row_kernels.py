"""Kernels that copy rows, add them to other rows, or sum them, and matmuls by a row's own matrix.

The docstring of a kernel lists its operands and constants in order. Widths are in bytes if rows are
copied, and in floats otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import (
    add_to_word,
    copy_bytes,
    floats_at,
    put_word,
    read_word,
)
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.cpu_kernels.context import (
    FLOATS,
    N_THREADS,
    ROWS,
    TALLY,
    THREAD,
    begin,
    locate_row,
    read_pitch,
    share,
)
from dynbatch.harness.engine.cpu_kernels.elementwise import FAST
from dynbatch.harness.engine.cpu_kernels.team import wait_at_barrier


@compiled
def gather(context: int, operands: int, constants: int, n: int) -> None:
    """Copy children's states to adjacent columns.

    Operands: states, index, copies. Constants: n_slots, width.
    """
    n_slots, width = read_word(constants, 0), read_word(constants, 1)
    _gather_rows(begin(operands, 0), begin(operands, 1), begin(operands, 2), n, n_slots, width)


@helper
def _gather_rows(states: int, index: int, out: int, n: int, n_slots: int, width: int) -> None:
    for k in range(n * n_slots):
        copy_bytes(out + k * width, states + read_word(index, k) * width, width)


@compiled
def copy(context: int, operands: int, constants: int, n: int) -> None:
    """Copy columns.

    Operands: source, out. Constants: width.
    """
    width = read_word(constants, 0)
    for m in range(n):
        source = begin(operands, 0) + m * read_pitch(operands, 0)
        copy_bytes(begin(operands, 1) + m * read_pitch(operands, 1), source, width)


@compiled
def pack(context: int, operands: int, constants: int, n: int) -> None:
    """Copy columns of a parameter, on the first thread only.

    Operands: source, out. Constants: width, rows.
    """
    if read_word(context, THREAD) == 0:
        width, n_rows = read_word(constants, 0), read_word(constants, 1)
        for m in range(n_rows):
            source = begin(operands, 0) + m * read_pitch(operands, 0)
            copy_bytes(begin(operands, 1) + m * read_pitch(operands, 1), source, width)
        add_to_word(read_word(context, TALLY), 1, n_rows * width)


@compiled
def look_up(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the pulled rows of a table.

    Operands: table, rows, out. Constants: width.
    """
    width = read_word(constants, 0)
    for m in range(n):
        source = begin(operands, 0) + read_word(begin(operands, 1), m) * width
        copy_bytes(begin(operands, 2) + m * read_pitch(operands, 2), source, width)


@compiled
def spread(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the row of each vertex to all of its edges.

    Operands: source, first edges, out. Constants: width.
    """
    width, edges = read_word(constants, 0), begin(operands, 1)
    first = read_word(edges, 0)
    for m in range(n):
        source = begin(operands, 0) + m * read_pitch(operands, 0)
        for edge in range(read_word(edges, m) - first, read_word(edges, m + 1) - first):
            copy_bytes(begin(operands, 2) + edge * read_pitch(operands, 2), source, width)


@compiled
def fill(context: int, operands: int, constants: int, n: int) -> None:
    """Set columns to a value.

    Operands: out. Constants: width, the value, an integer.
    """
    value = np.float32(read_word(constants, 1))
    for m in range(n):
        to = locate_row(operands, 0, m)
        for j in range(read_word(constants, 0)):
            to[j] = value


@compiled
def leave(context: int, operands: int, constants: int, n: int) -> None:
    """Do nothing: gradients of looked-up rows stay in place until the table's update."""


@compiled
def materialize_views(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the children's states of batches that were views, if all rows are read in one call.

    All threads wait until this is done, because they read rows that others copy.

    Operands: states, index, runs, batch boundaries, copies, a flag per thread that the copy is
    done. Constants: n_slots, width.

    Before each call, the flags of all threads are equal: so either all of them copy and wait for
    each other, or none.

    Args:
        n: The number of batches.
    """
    done, runs, bounds = begin(operands, 5), begin(operands, 2), begin(operands, 3)
    thread, n_threads = read_word(context, THREAD), read_word(context, N_THREADS)
    if read_word(runs, n) >= 0 or read_word(done, thread) != 0:
        return
    put_word(done, thread, 1)
    n_slots, width = read_word(constants, 0), read_word(constants, 1)
    for b in range(n):
        if read_word(runs, b) >= 0:
            at, n_rows = share(
                read_word(bounds, b + 1) - read_word(bounds, b), ROWS, thread, n_threads
            )
            first = (read_word(bounds, b) + at) * n_slots
            _gather_rows(
                begin(operands, 0), begin(operands, 1) + 8 * first,
                begin(operands, 4) + first * width, n_rows, n_slots, width,
            )  # fmt: skip
            add_to_word(read_word(context, TALLY), 0, 1)
            add_to_word(read_word(context, TALLY), 1, n_rows * n_slots * width)
    wait_at_barrier(context)


@compiled
def scatter_add(context: int, operands: int, constants: int, n: int) -> None:
    """Add gradients to children's rows.

    Operands: target, index, source. Constants: n_slots, width.
    """
    n_slots, width = read_word(constants, 0), read_word(constants, 1)
    for m in range(n):
        index = begin(operands, 1) + m * read_pitch(operands, 1)
        for slot in range(n_slots):
            to = locate_row(operands, 0, read_word(index, slot))
            source = begin(operands, 2) + m * read_pitch(operands, 2) + 4 * slot * width
            values = floats_at(source)
            for j in range(width):
                to[j] += values[j]


@compiled
def sum_edges(context: int, operands: int, constants: int, n: int) -> None:
    """Sum the rows of each vertex's edges.

    Operands: rows, first edges, out. Constants: width.
    """
    width, edges = read_word(constants, 0), begin(operands, 1)
    first = read_word(edges, 0)
    for m in range(n):
        total = locate_row(operands, 2, m)
        for j in range(width):
            total[j] = 0.0
        for edge in range(read_word(edges, m) - first, read_word(edges, m + 1) - first):
            values = locate_row(operands, 0, edge)
            for j in range(width):
                total[j] += values[j]


@compiled
def sum_children(context: int, operands: int, constants: int, n: int) -> None:
    """Sum the states of each vertex's children, which are read in place.

    Operands: states, index of all edges, first edges, out. Constants: width.
    """
    width, index, edges = read_word(constants, 0), begin(operands, 1), begin(operands, 2)
    for m in range(n):
        total = locate_row(operands, 3, m)
        for j in range(width):
            total[j] = 0.0
        for edge in range(read_word(edges, m), read_word(edges, m + 1)):
            values = locate_row(operands, 0, read_word(index, edge))
            for j in range(width):
                total[j] += values[j]


@compiled(fast=FAST)
def sum_elements(context: int, operands: int, constants: int, n: int) -> None:
    """Sum every row.

    Operands: x, out. Constants: width of x.
    """
    width = read_word(constants, 0)
    for m in range(n):
        x, out = locate_row(operands, 0, m), locate_row(operands, 1, m)
        total = x[0]
        for j in range(1, width):
            total += x[j]
        out[0] = total


@compiled
def expand(context: int, operands: int, constants: int, n: int) -> None:
    """Repeat the only element of every row.

    Operands: x, out. Constants: width of out.
    """
    for m in range(n):
        x, out = locate_row(operands, 0, m), locate_row(operands, 1, m)
        for j in range(read_word(constants, 0)):
            out[j] = x[0]


@compiled(fast=FAST)
def add_up_rows(context: int, operands: int, constants: int, n: int) -> None:
    """Sum all rows into a gradient; each thread sums a part of the columns.

    Operands: rows, gradient, whether it was written. Constants: width, rows per vertex.
    """
    width, per_vertex, thread = (
        read_word(constants, 0),
        read_word(constants, 1),
        read_word(context, THREAD),
    )
    first, n_own = share(width, FLOATS, thread, read_word(context, N_THREADS))
    out, written = floats_at(begin(operands, 1) + 4 * first), begin(operands, 2)
    if read_word(written, thread) == 0:
        for j in range(n_own):
            out[j] = 0.0
        put_word(written, thread, 1)
    at = begin(operands, 0) + 4 * first
    if per_vertex == 1:
        _add_up(out, at, read_pitch(operands, 0), n, n_own)
        return
    for m in range(n):
        _add_up(out, at + m * read_pitch(operands, 0), 4 * width, per_vertex, n_own)


@helper(fast=FAST)
def _add_up(out: Any, at: int, stride: int, n: int, width: int) -> None:
    """Add n rows, four at a time, which stores each sum a quarter as often."""
    n_by_four = n - n % 4
    for m in range(0, n_by_four, 4):
        a, b = floats_at(at + m * stride), floats_at(at + (m + 1) * stride)
        c, d = floats_at(at + (m + 2) * stride), floats_at(at + (m + 3) * stride)
        for j in range(width):
            out[j] += (a[j] + b[j]) + (c[j] + d[j])
    for m in range(n_by_four, n):
        values = floats_at(at + m * stride)
        for j in range(width):
            out[j] += values[j]


@compiled(fast=FAST)
def apply(context: int, operands: int, constants: int, n: int) -> None:
    """Multiply each row by its own matrix.

    Operands: x, matrix, out. Constants: widths of x and of out.
    """
    k, width = read_word(constants, 0), read_word(constants, 1)
    for m in range(n):
        x, to = locate_row(operands, 0, m), locate_row(operands, 2, m)
        matrix = begin(operands, 1) + m * read_pitch(operands, 1)
        for j in range(width):
            to[j] = 0.0
        for i in range(k):
            factor, values = x[i], floats_at(matrix + 4 * i * width)
            for j in range(width):
                to[j] += factor * values[j]


@compiled(fast=FAST)
def apply_transposed(context: int, operands: int, constants: int, n: int) -> None:
    """Multiply each row by its own matrix, transposed.

    Operands: y, matrix, out. Constants: widths of y and of out.
    """
    width, k = read_word(constants, 0), read_word(constants, 1)
    for m in range(n):
        y, to = locate_row(operands, 0, m), locate_row(operands, 2, m)
        matrix = begin(operands, 1) + m * read_pitch(operands, 1)
        for i in range(k):
            values = floats_at(matrix + 4 * i * width)
            total = y[0] * values[0]
            for j in range(1, width):
                total += y[j] * values[j]
            to[i] = total


@compiled
def compute_outer(context: int, operands: int, constants: int, n: int) -> None:
    """Multiply each element of x by each of y.

    Operands: x, y, out. Constants: widths of x and of y.
    """
    k, width = read_word(constants, 0), read_word(constants, 1)
    for m in range(n):
        x, y = locate_row(operands, 0, m), locate_row(operands, 1, m)
        to = begin(operands, 2) + m * read_pitch(operands, 2)
        for i in range(k):
            factor, part = x[i], floats_at(to + 4 * i * width)
            for j in range(width):
                part[j] = factor * y[j]
