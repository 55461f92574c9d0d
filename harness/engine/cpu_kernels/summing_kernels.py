"""Kernels that sum rows, or the elements of one; and products of a row with a matrix of its own.

Operands and constants of each stand in its docstring, in order; widths are in floats.
"""

from __future__ import annotations

from typing import Any

from harness.compiler.compiled import compiled
from harness.compiler.pointers import floats_at, put_word, word
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.context import N_THREADS, THREAD, begin, pitch, row
from harness.engine.cpu_kernels.fast_math import FAST
from harness.engine.cpu_kernels.shares import FLOATS, share


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
