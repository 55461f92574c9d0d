"""Matrix products of bfloat16, which has float32's exponent and 8 bits of its mantissa.

Factors are rounded to the nearest, ties to even; sums are float32, as AVX-512 BF16 and AMX make
them. oneDNN multiplies. Weights are rounded once for each mini-batch, what they are multiplied with
before each product, in memory of the thread's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.engine.cpu_kernels.addresses import carray, uint16s
from harness.engine.cpu_kernels.blas import (
    N_FACTORS,
    N_HALVES,
    ONEDNN_HALF,
    PLAIN,
    TRANSPOSED,
)
from harness.engine.cpu_kernels.foreign import call
from harness.machine.compiled import compiled_with

_BIAS, _ODD, _SHIFT = np.uint32(0x7FFF), np.uint32(1), np.uint32(16)
_MAGNITUDE, _INFINITY = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_QUIET = np.uint32(0x40)  # a bit that keeps NaN what it is


@compiled_with(constants=False, error_model="numpy")
def round_rows(
    x: Any, at: int, stride: int, n: int, width: int, out: Any, out_at: int
) -> None:  # pragma: no cover - compiled
    """Round n rows of float32; out: uint16, row after row from element out_at on."""
    flat = x.reshape(x.size).view(np.uint32)
    for m in range(n):
        row = flat[at + m * stride : at + m * stride + width]
        to = out[out_at + m * width : out_at + (m + 1) * width]
        for j in range(len(row)):
            bits = row[j]
            rounded = (bits + _BIAS + ((bits >> _SHIFT) & _ODD)) >> _SHIFT
            is_nan = (bits & _MAGNITUDE) > _INFINITY
            to[j] = np.uint16((bits >> _SHIFT) | _QUIET if is_nan else rounded)


@compiled_with(constants=False, error_model="numpy")
def multiply_half(
    x: Any, x_at: int, x_stride: int, n: int, weight: Any, transposed: bool, accumulate: bool,
    out: Any, out_at: int, out_stride: int, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """As blas.multiply; weight: uint16, rounded already."""
    rows, columns = weight.shape
    k, m = (columns, rows) if transposed else (rows, columns)
    room = carray(uint16s(factors.ctypes.data + 4 * N_FACTORS), (N_HALVES,))
    n_at_once = N_HALVES // max(k, 1)
    for row in range(0, n, n_at_once):
        n_rows = min(n_at_once, n - row)
        round_rows(x, x_at + row * x_stride, x_stride, n_rows, k, room, 0)
        call(sizes[ONEDNN_HALF], (
            np.int32(PLAIN), np.int32(TRANSPOSED if transposed else PLAIN), n_rows, m, k,
            np.float32(1.0), room.ctypes.data, k, weight.ctypes.data, columns,
            np.float32(1.0 if accumulate else 0.0),
            out.ctypes.data + 4 * (out_at + row * out_stride), out_stride,
        ))  # fmt: skip


@compiled_with(constants=False, error_model="numpy")
def add_outer_half(
    x: Any, x_at: int, x_stride: int, dy: Any, dy_at: int, dy_stride: int, n: int,
    out: Any, written: Any, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """As blas.add_outer."""
    k, m = out.shape
    if k == 0:  # a thread that has no part in it
        return
    room = carray(uint16s(factors.ctypes.data + 4 * N_FACTORS), (N_HALVES,))
    n_at_once = N_HALVES // (k + m)
    if n == 0 and written[0] == 0:
        out[:, :] = 0.0
    for row in range(0, n, n_at_once):
        n_rows = min(n_at_once, n - row)
        dy_room = n_rows * k
        round_rows(x, x_at + row * x_stride, x_stride, n_rows, k, room, 0)
        round_rows(dy, dy_at + row * dy_stride, dy_stride, n_rows, m, room, dy_room)
        is_first = written[0] == 0 and row == 0
        call(sizes[ONEDNN_HALF], (
            np.int32(TRANSPOSED), np.int32(PLAIN), k, m, n_rows, np.float32(1.0),
            room.ctypes.data, k, room.ctypes.data + 2 * dy_room, m,
            np.float32(0.0 if is_first else 1.0), out.ctypes.data, m,
        ))  # fmt: skip
    written[0] = 1
