"""Kernels that bring rows from one place to another, add them to others, or sum them.

Operands and constants of each stand in its docstring, in order; widths are in bytes where rows are
copied, and in floats elsewhere. Also products of a row with a matrix of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.pointers import add_to_word, copy_bytes, floats_at, put_word, word
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.context import (
    FLOATS,
    N_THREADS,
    ROWS,
    TALLY,
    THREAD,
    begin,
    pitch,
    row,
    share,
)
from harness.engine.cpu_kernels.elementwise import FAST


@compiled
def gather(context: int, operands: int, constants: int, n: int) -> None:
    """Bring children's states side by side: states, index, copies; n_slots, width."""
    n_slots, width = word(constants, 0), word(constants, 1)
    _gather_rows(begin(operands, 0), begin(operands, 1), begin(operands, 2), n, n_slots, width)


@helper
def _gather_rows(states: int, index: int, out: int, n: int, n_slots: int, width: int) -> None:
    for k in range(n * n_slots):
        copy_bytes(out + k * width, states + word(index, k) * width, width)


@compiled
def copy(context: int, operands: int, constants: int, n: int) -> None:
    """Copy columns: source, out; width."""
    width = word(constants, 0)
    for m in range(n):
        source = begin(operands, 0) + m * pitch(operands, 0)
        copy_bytes(begin(operands, 1) + m * pitch(operands, 1), source, width)


@compiled
def pack(context: int, operands: int, constants: int, n: int) -> None:
    """Copy columns of a parameter by the first thread: source, out; width, rows."""
    if word(context, THREAD) == 0:
        width, n_rows = word(constants, 0), word(constants, 1)
        for m in range(n_rows):
            source = begin(operands, 0) + m * pitch(operands, 0)
            copy_bytes(begin(operands, 1) + m * pitch(operands, 1), source, width)
        add_to_word(word(context, TALLY), 1, n_rows * width)


@compiled
def look_up(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the rows of a table that are pulled: table, rows, out; width."""
    width = word(constants, 0)
    for m in range(n):
        source = begin(operands, 0) + word(begin(operands, 1), m) * width
        copy_bytes(begin(operands, 2) + m * pitch(operands, 2), source, width)


@compiled
def spread(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the row of each vertex to all of its edges: source, where edges begin, out; width."""
    width, edges = word(constants, 0), begin(operands, 1)
    first = word(edges, 0)
    for m in range(n):
        source = begin(operands, 0) + m * pitch(operands, 0)
        for edge in range(word(edges, m) - first, word(edges, m + 1) - first):
            copy_bytes(begin(operands, 2) + edge * pitch(operands, 2), source, width)


@compiled
def fill(context: int, operands: int, constants: int, n: int) -> None:
    """Set columns to a value: out; width, the value, a whole number."""
    value = np.float32(word(constants, 1))
    for m in range(n):
        to = row(operands, 0, m)
        for j in range(word(constants, 0)):
            to[j] = value


@compiled
def leave(context: int, operands: int, constants: int, n: int) -> None:
    """Leave gradients of looked-up rows where they are: the update of a table adds them up."""


@compiled
def fill_viewed(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the children's states that n batches read in place, where all rows are read at once.

    Operands: states, index, runs, where batches begin, copies, and of each thread whether it has
    done so. Constants: n_slots, width.
    """
    done, runs, bounds = begin(operands, 5), begin(operands, 2), begin(operands, 3)
    thread, n_threads = word(context, THREAD), word(context, N_THREADS)
    if word(runs, n) >= 0 or word(done, thread) != 0:
        return
    put_word(done, thread, 1)
    n_slots, width = word(constants, 0), word(constants, 1)
    for b in range(n):
        if word(runs, b) >= 0:
            at, n_rows = share(word(bounds, b + 1) - word(bounds, b), ROWS, thread, n_threads)
            first = (word(bounds, b) + at) * n_slots
            _gather_rows(
                begin(operands, 0), begin(operands, 1) + 8 * first,
                begin(operands, 4) + first * width, n_rows, n_slots, width,
            )  # fmt: skip
            add_to_word(word(context, TALLY), 0, 1)
            add_to_word(word(context, TALLY), 1, n_rows * n_slots * width)


@compiled
def scatter_add(context: int, operands: int, constants: int, n: int) -> None:
    """Add gradients to children's rows: target, index, source; n_slots, width."""
    n_slots, width = word(constants, 0), word(constants, 1)
    for m in range(n):
        index = begin(operands, 1) + m * pitch(operands, 1)
        for slot in range(n_slots):
            to = row(operands, 0, word(index, slot))
            source = begin(operands, 2) + m * pitch(operands, 2) + 4 * slot * width
            values = floats_at(source)
            for j in range(width):
                to[j] += values[j]


@compiled
def sum_edges(context: int, operands: int, constants: int, n: int) -> None:
    """Sum the rows of each vertex's edges: rows, where edges begin, out; width."""
    width, edges = word(constants, 0), begin(operands, 1)
    first = word(edges, 0)
    for m in range(n):
        total = row(operands, 2, m)
        for j in range(width):
            total[j] = 0.0
        for edge in range(word(edges, m) - first, word(edges, m + 1) - first):
            values = row(operands, 0, edge)
            for j in range(width):
                total[j] += values[j]


@compiled
def sum_children(context: int, operands: int, constants: int, n: int) -> None:
    """Sum the states of each vertex's children where they are: states, index of all edges, where
    edges begin, out; width.
    """
    width, index, edges = word(constants, 0), begin(operands, 1), begin(operands, 2)
    for m in range(n):
        total = row(operands, 3, m)
        for j in range(width):
            total[j] = 0.0
        for edge in range(word(edges, m), word(edges, m + 1)):
            values = row(operands, 0, word(index, edge))
            for j in range(width):
                total[j] += values[j]


@compiled(fast=FAST)
def sum_elements(context: int, operands: int, constants: int, n: int) -> None:
    """Sum every row: x, out; width of x."""
    width = word(constants, 0)
    for m in range(n):
        x, out = row(operands, 0, m), row(operands, 1, m)
        total = x[0]
        for j in range(1, width):
            total += x[j]
        out[0] = total


@compiled
def expand(context: int, operands: int, constants: int, n: int) -> None:
    """Repeat the only element of every row: x, out; width of out."""
    for m in range(n):
        x, out = row(operands, 0, m), row(operands, 1, m)
        for j in range(word(constants, 0)):
            out[j] = x[0]


@compiled(fast=FAST)
def add_up_rows(context: int, operands: int, constants: int, n: int) -> None:
    """Sum all rows into a gradient: rows, gradient, whether it was written; width, rows a vertex.

    A thread sums a part of the columns.
    """
    width, per_vertex, thread = word(constants, 0), word(constants, 1), word(context, THREAD)
    first, n_own = share(width, FLOATS, thread, word(context, N_THREADS))
    out, written = floats_at(begin(operands, 1) + 4 * first), begin(operands, 2)
    if word(written, thread) == 0:
        for j in range(n_own):
            out[j] = 0.0
        put_word(written, thread, 1)
    at = begin(operands, 0) + 4 * first
    if per_vertex == 1:
        _add_up(out, at, pitch(operands, 0), n, n_own)
        return
    for m in range(n):
        _add_up(out, at + m * pitch(operands, 0), 4 * width, per_vertex, n_own)


@helper(fast=FAST)
def _add_up(out: Any, at: int, stride: int, n: int, width: int) -> None:
    """Add n rows, four at a time; a loop that adds one stores each sum four times as often."""
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
    """Multiply each row with its own matrix: x, matrix, out; widths of x and of out."""
    k, width = word(constants, 0), word(constants, 1)
    for m in range(n):
        x, to = row(operands, 0, m), row(operands, 2, m)
        matrix = begin(operands, 1) + m * pitch(operands, 1)
        for j in range(width):
            to[j] = 0.0
        for i in range(k):
            factor, values = x[i], floats_at(matrix + 4 * i * width)
            for j in range(width):
                to[j] += factor * values[j]


@compiled(fast=FAST)
def apply_transposed(context: int, operands: int, constants: int, n: int) -> None:
    """Multiply each row with its own matrix, transposed: y, matrix, out; widths of y and of out."""
    width, k = word(constants, 0), word(constants, 1)
    for m in range(n):
        y, to = row(operands, 0, m), row(operands, 2, m)
        matrix = begin(operands, 1) + m * pitch(operands, 1)
        for i in range(k):
            values = floats_at(matrix + 4 * i * width)
            total = y[0] * values[0]
            for j in range(1, width):
                total += y[j] * values[j]
            to[i] = total


@compiled
def outer(context: int, operands: int, constants: int, n: int) -> None:
    """Multiply each element of x with each of y: x, y, out; widths of x and of y."""
    k, width = word(constants, 0), word(constants, 1)
    for m in range(n):
        x, y = row(operands, 0, m), row(operands, 1, m)
        to = begin(operands, 2) + m * pitch(operands, 2)
        for i in range(k):
            factor, part = x[i], floats_at(to + 4 * i * width)
            for j in range(width):
                part[j] = factor * y[j]
