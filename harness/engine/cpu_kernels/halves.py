"""Matrix products of bfloat16, which has float32's exponent and 8 bits of its mantissa.

Factors are rounded to the nearest, ties to even; sums are float32, as AVX-512 BF16 and AMX make
them. oneDNN multiplies. Weights are rounded once for each mini-batch, what they are multiplied with
before each product, in memory of the thread's own.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.pointers import floats_at, shorts_at, unsigned_ints_at, word
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.blas import (
    N_FACTORS,
    N_HALVES,
    ONEDNN_HALF,
    PLAIN,
    TRANSPOSED,
    by_onednn,
)
from harness.engine.cpu_kernels.context import FACTORS, SIZES

_BIAS, _ODD, _SHIFT = np.uint32(0x7FFF), np.uint32(1), np.uint32(16)
_MAGNITUDE, _INFINITY = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_QUIET = np.uint32(0x40)  # a bit that keeps NaN what it is


@helper
def round_rows(x: int, pitch: int, n: int, width: int, out: int) -> None:
    """Round n rows of float32, `pitch` bytes apart, to uint16, row after row; addresses."""
    for m in range(n):
        row, to = unsigned_ints_at(x + m * pitch), shorts_at(out + 2 * m * width)
        for j in range(width):
            bits = row[j]
            rounded = (bits + _BIAS + ((bits >> _SHIFT) & _ODD)) >> _SHIFT
            is_nan = (bits & _MAGNITUDE) > _INFINITY
            to[j] = np.uint16((bits >> _SHIFT) | _QUIET if is_nan else rounded)


@compiled
def round_parameter(x: int, pitch: int, n: int, width: int, out: int) -> None:
    """See round_rows."""
    round_rows(x, pitch, n, width, out)


@helper
def multiply_half(
    context: int, x: int, x_row: int, n: int, w: int, rows: int, columns: int, transposed: int,
    adds: int, out: int, out_row: int,
) -> None:  # fmt: skip
    """As blas.multiply; w: uint16, rounded already."""
    k, m = (columns, rows) if transposed != 0 else (rows, columns)
    room = word(context, FACTORS) + 4 * N_FACTORS
    n_at_once = N_HALVES // max(k, 1)
    for row in range(0, n, n_at_once):
        n_rows = min(n_at_once, n - row)
        round_rows(x + row * x_row, x_row, n_rows, k, room)
        by_onednn(
            word(word(context, SIZES), ONEDNN_HALF), PLAIN,
            TRANSPOSED if transposed != 0 else PLAIN, n_rows, m, k, room, k, w, columns, adds,
            out + row * out_row, out_row // 4,
        )  # fmt: skip


@helper
def add_outer_half(
    context: int, x: int, x_row: int, k: int, dy: int, dy_row: int, m: int, n: int, out: int,
    adds: int,
) -> None:  # fmt: skip
    """As blas.add_outer."""
    room = word(context, FACTORS) + 4 * N_FACTORS
    n_at_once = N_HALVES // (k + m)
    if n == 0 and adds == 0:
        to = floats_at(out)
        for j in range(k * m):
            to[j] = 0.0
    for row in range(0, n, n_at_once):
        n_rows = min(n_at_once, n - row)
        dy_room = room + 2 * n_rows * k
        round_rows(x + row * x_row, x_row, n_rows, k, room)
        round_rows(dy + row * dy_row, dy_row, n_rows, m, dy_room)
        by_onednn(
            word(word(context, SIZES), ONEDNN_HALF), TRANSPOSED, PLAIN, k, m, n_rows, room, k,
            dy_room, m, 1 if row > 0 else adds, out, m,
        )  # fmt: skip
