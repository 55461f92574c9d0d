"""Kernels of matmuls: by a parameter, by a vertex's own matrix, and gradients of both.

The docstring of a kernel lists its operands and constants in order. A value may be a matrix of
`per_vertex` consecutive rows, each of which is a row of the matmul.
"""

from __future__ import annotations

from typing import Any

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import put_word, read_word
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.cpu_kernels.blas import OWN, add_outer, multiply
from dynbatch.harness.engine.cpu_kernels.context import (
    FLOATS,
    N_THREADS,
    SIZES,
    THREAD,
    begin,
    read_pitch,
    share,
)
from dynbatch.harness.engine.cpu_kernels.own_matmuls import PACKED_ROWS, multiply_packed

# Constants of matmuls by parameters.
PER_VERTEX, ROWS, COLUMNS, IS_TRANSPOSED, ADDS, HAS_BIAS = range(6)
COPIES_FROM, IS_PACKED, COPIES_UP_TO = range(6, 9)
# Operands: x, out, the parameter, the bias, a copy, and the number of the function's rows. The copy
# is used if these are from COPIES_FROM to COPIES_UP_TO; 0: no copy. It is W^T, or it is packed for
# the engine's own kernels (memory_kernels.pack_columns), from W or W^T as it is needed.
X, OUT, WEIGHT, BIAS, COPY, N_OF_FUNCTION = range(6)
CHILDREN = 6  # numbers of rows of states, if x is the children's state


@compiled
def multiply_rows(context: int, operands: int, constants: int, n: int) -> None:
    """Compute out = x W, or x W^T, or add it to out."""
    per_vertex = read_word(constants, PER_VERTEX)
    k, m = _read_sizes(constants)
    x_row, out_row = read_pitch(operands, X), read_pitch(operands, OUT)
    all_follow = x_row == 4 * k * per_vertex and out_row == 4 * m * per_vertex
    n_groups, n_rows, inner_x, inner_out = n, per_vertex, 4 * k, 4 * m
    if per_vertex == 1:
        n_groups, n_rows, inner_x, inner_out = 1, n, x_row, out_row
    elif all_follow:
        n_groups, n_rows = 1, n * per_vertex
    for group in range(n_groups):
        _multiply(
            context, operands, constants, begin(operands, X) + group * x_row, inner_x, n_rows,
            begin(operands, OUT) + group * out_row, inner_out,
        )  # fmt: skip


@compiled
def multiply_children(context: int, operands: int, constants: int, n: int) -> None:
    """Compute multiply_rows for children's matrices, read in place from rows of states."""
    k, m = _read_sizes(constants)
    for v in range(n):
        child = read_word(begin(operands, CHILDREN) + v * read_pitch(operands, CHILDREN), 0)
        x, out = begin(operands, X) + child * read_pitch(operands, X), begin(operands, OUT)
        _multiply(
            context, operands, constants, x, 4 * k, read_word(constants, PER_VERTEX),
            out + v * read_pitch(operands, OUT), 4 * m,
        )  # fmt: skip


@helper
def _read_sizes(constants: int) -> Any:
    """Return the columns of x and of out."""
    rows, columns = read_word(constants, ROWS), read_word(constants, COLUMNS)
    if read_word(constants, IS_TRANSPOSED) != 0:
        return columns, rows
    return rows, columns


@helper
def _multiply(
    context: int, operands: int, constants: int, x: int, x_row: int, n: int, out: int, out_row: int
) -> None:
    rows, columns = read_word(constants, ROWS), read_word(constants, COLUMNS)
    transposed, weight = read_word(constants, IS_TRANSPOSED), begin(operands, WEIGHT)
    start, start_row = out if read_word(constants, ADDS) != 0 else 0, out_row
    if read_word(constants, HAS_BIAS) != 0:
        start, start_row = begin(operands, BIAS), 0
    copies_from = read_word(constants, COPIES_FROM)
    n_of_function = read_word(begin(operands, N_OF_FUNCTION), 0) if copies_from > 0 else 0
    if n_of_function > 0 and copies_from <= n_of_function <= read_word(constants, COPIES_UP_TO):
        if read_word(constants, IS_PACKED) == 0:
            weight, transposed = begin(operands, COPY), 0
            rows, columns = columns, rows
        elif n <= PACKED_ROWS:
            k, m = _read_sizes(constants)
            multiply_packed(
                read_word(read_word(context, SIZES), OWN), x, x_row, n, begin(operands, COPY), k, m,
                out, out_row, start, start_row,
            )  # fmt: skip
            return
    multiply(
        context, x, x_row, n, weight, rows, columns, transposed, out, out_row, start, start_row
    )


@compiled
def apply_children(context: int, operands: int, constants: int, n: int) -> None:
    """Multiply each row by a child's matrix, which is read in place.

    Operands: x, states, index, out. Constants: rows and columns of the matrix, whether it is
    transposed.
    """
    rows, columns, transposed = (
        read_word(constants, 0),
        read_word(constants, 1),
        read_word(constants, 2),
    )
    for v in range(n):  # with one row, the pitch is unused, but libraries check that it is large
        child = read_word(begin(operands, 2) + v * read_pitch(operands, 2), 0)
        multiply(
            context, begin(operands, 0) + v * read_pitch(operands, 0), 4 * (rows + columns), 1,
            begin(operands, 1) + child * read_pitch(operands, 1), rows, columns, transposed,
            begin(operands, 3) + v * read_pitch(operands, 3), 4 * (rows + columns), 0, 0,
        )  # fmt: skip


@compiled
def sum_outer(context: int, operands: int, constants: int, n: int) -> None:
    """Add x^T dy of all rows to a gradient; each thread computes a part of the gradient's rows.

    Operands: x, dy, gradient, whether it was written, row numbers. Constants: rows per vertex,
    widths of x and of dy, whether x are children's matrices read in place.
    """
    per_vertex, k, m = read_word(constants, 0), read_word(constants, 1), read_word(constants, 2)
    of_children, thread = read_word(constants, 3) != 0, read_word(context, THREAD)
    first, n_own = share(k, FLOATS, thread, read_word(context, N_THREADS))
    out, written = begin(operands, 2) + 4 * first * m, begin(operands, 3)
    if n_own == 0:
        return
    at_once = per_vertex == 1 and not of_children
    x_row, dy_row = (
        (read_pitch(operands, 0), read_pitch(operands, 1)) if at_once else (4 * k, 4 * m)
    )
    n_rows = n if at_once else per_vertex
    for v in range(1 if at_once else n):
        row = read_word(begin(operands, 4) + v * read_pitch(operands, 4), 0) if of_children else v
        x = begin(operands, 0) + 4 * first + row * read_pitch(operands, 0)
        dy, adds = begin(operands, 1) + v * read_pitch(operands, 1), read_word(written, thread)
        add_outer(context, x, x_row, n_own, dy, dy_row, m, n_rows, out, adds)
        put_word(written, thread, 1)
