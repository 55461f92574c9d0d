"""Matrix products from compiled code: libraries called without Python in between.

torch.mm costs about 5 us a call in Python alone, as much as the product itself for a batch of four
vertices. numba calls the libraries (libraries.py) by their addresses instead.

oneDNN does what has several rows. What is left to OpenBLAS, and where oneDNN is missing:

- fewer than ONEDNN_ROWS rows, on AVX-512 machines: there OpenBLAS has kernels for small products
  (m n k <= 10^6) that neither pack nor copy, and larger ones are cut into such. GFLOP/s on one
  Zen 5 core, by weights of 256 x 1 024: 4 rows 136 (oneDNN 76), 8 rows 138 (173);
- many rows with W^T, whole: 1 500 rows by 1 024 x 256 at 215 (oneDNN 198);
- from WHOLE_ROWS rows on nothing is cut: 1 500 rows at 225 whole, 174 cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from harness.engine.cpu_kernels.libraries import (
    LIBRARY,
    ONEDNN,
    ONEDNN_SGEMM,
    SGEMM,
    Library,
    one_thread,
)
from harness.machine.compiled import compiled_with

ONEDNN_ROWS, WHOLE_ROWS, MANY_ROWS = 6, 96, 256
NEVER = 2**30
# sizes[LIMIT]: the largest product that is not cut, 0 where none is; sizes[ONEDNN_FROM]: from how
# many rows on oneDNN multiplies.
N_SIZES, LIMIT, ONEDNN_FROM = 8, 6, 7
PLAIN, TRANSPOSED = ord("N"), ord("T")

_sgemm: Any = types.ExternalFunction(SGEMM, types.void(*[types.intp] * 13))
_onednn_sgemm: Any = types.ExternalFunction(
    ONEDNN_SGEMM,
    types.int32(
        *(types.int32, types.int32, types.intp, types.intp, types.intp, types.float32),
        *(types.intp, types.intp, types.intp, types.intp, types.float32, types.intp, types.intp),
    ),
)


def blas_scratch(
    library: Library, onednn_from: int = NEVER
) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.float32]]:
    """Arrays that `multiply` wants as its last arguments; not to be shared between threads.

    Fortran takes every argument by address; these hold sizes, letters (not transposed,
    transposed) and factors (0, 1).
    """
    sizes = np.zeros(N_SIZES, dtype=library.integer)
    sizes[LIMIT], sizes[ONEDNN_FROM] = library.limit, onednn_from
    letters = np.frombuffer(b"NT", dtype=np.uint8).copy()
    return sizes, letters, np.array([0.0, 1.0], dtype=np.float32)


def _first_of_onednn() -> int:
    """From how many rows on oneDNN multiplies: from fewer where OpenBLAS cuts nothing."""
    if ONEDNN is None or LIBRARY is None:
        return NEVER
    return ONEDNN_ROWS if LIBRARY.limit else 1


SCRATCH = None if LIBRARY is None else blas_scratch(LIBRARY, _first_of_onednn())


def set_threads(n: int) -> int:
    """Let products use n threads, and return how many they will: a plain library has but one.

    Only whole products can be shared, so that several threads cut nothing.
    """
    if LIBRARY is None or SCRATCH is None:
        return 1
    LIBRARY.set_threads(n)
    if ONEDNN is not None:
        ONEDNN.set_threads(n)
    SCRATCH[0][LIMIT] = LIBRARY.limit if n == 1 else 0
    return 1 if LIBRARY.set_threads is one_thread else n


@compiled_with(constants=False, error_model="numpy")
def multiply(
    x: Any, x_at: int, x_stride: int, n: int, weight: Any, transposed: bool, accumulate: bool,
    out: Any, out_at: int, out_stride: int, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """out = x W (or x W^T), or out += it, for n rows.

    x_at, out_at: element at which the first row begins. x_stride, out_stride: elements from one row
    to the next. All arrays are C-contiguous float32.
    """
    rows, columns = weight.shape
    x_data, out_data = x.ctypes.data + 4 * x_at, out.ctypes.data + 4 * out_at
    k, m = (columns, rows) if transposed else (rows, columns)
    if n >= sizes[ONEDNN_FROM] and not (transposed and n >= MANY_ROWS):
        _onednn_sgemm(
            PLAIN, TRANSPOSED if transposed else PLAIN, n, m, k, np.float32(1.0), x_data, x_stride,
            weight.ctypes.data, columns, np.float32(1.0 if accumulate else 0.0), out_data,
            out_stride,
        )  # fmt: skip
        return
    n_columns, n_rows = _tile(n, k, m, 0 if transposed or n >= WHOLE_ROWS else sizes[LIMIT])
    # Row-major out = x W is column-major out^T = W^T x^T.
    sizes[2], sizes[3], sizes[4], sizes[5] = k, columns, x_stride, out_stride
    step, size = sizes.itemsize, sizes.ctypes.data
    letter, factor = letters.ctypes.data, factors.ctypes.data
    for column in range(0, m, n_columns):
        sizes[0] = min(n_columns, m - column)
        w_at = column * columns if transposed else column
        for row in range(0, n, n_rows):
            sizes[1] = min(n_rows, n - row)
            _sgemm(
                letter + (1 if transposed else 0), letter, size, size + step, size + 2 * step,
                factor + 4, weight.ctypes.data + 4 * w_at, size + 3 * step,
                x_data + 4 * row * x_stride, size + 4 * step,
                factor + (4 if accumulate else 0),
                out_data + 4 * (row * out_stride + column), size + 5 * step,
            )  # fmt: skip


@compiled_with(constants=False, error_model="numpy")
def add_outer(
    x: Any, x_at: int, x_stride: int, dy: Any, dy_at: int, dy_stride: int, n: int,
    out: Any, written: Any, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """out += x^T dy, summed over n rows, or out = it where nothing was written yet; out (k, m).

    Cut into pieces of 128 x 32 x 128 where small products are fast.
    """
    k, m = out.shape
    x_data, dy_data = x.ctypes.data + 4 * x_at, dy.ctypes.data + 4 * dy_at
    if n >= sizes[ONEDNN_FROM]:
        _onednn_sgemm(
            TRANSPOSED, PLAIN, k, m, n, np.float32(1.0), x_data, x_stride, dy_data, dy_stride,
            np.float32(0.0 if written[0] == 0 else 1.0), out.ctypes.data, m,
        )  # fmt: skip
        written[0] = 1
        return
    if written[0] == 0:
        out[:] = 0.0
        written[0] = 1
    n_rows, n_columns, n_inner = 128, 32, 128
    if sizes[LIMIT] == 0:
        n_rows, n_columns, n_inner = max(m, 1), max(k, 1), max(n, 1)
    sizes[3], sizes[4], sizes[5] = dy_stride, x_stride, m
    step, size = sizes.itemsize, sizes.ctypes.data
    letter, factor = letters.ctypes.data, factors.ctypes.data
    for row in range(0, n, n_inner):
        sizes[2] = min(n_inner, n - row)
        for column in range(0, m, n_rows):
            sizes[0] = min(n_rows, m - column)
            for i in range(0, k, n_columns):
                sizes[1] = min(n_columns, k - i)
                _sgemm(
                    letter, letter + 1, size, size + step, size + 2 * step, factor + 4,
                    dy_data + 4 * (row * dy_stride + column), size + 3 * step,
                    x_data + 4 * (row * x_stride + i), size + 4 * step, factor + 4,
                    out.ctypes.data + 4 * (i * m + column), size + 5 * step,
                )  # fmt: skip


@compiled_with(constants=False, error_model="numpy")
def _tile(n: int, k: int, m: int, limit: int) -> tuple[int, int]:  # pragma: no cover - compiled
    """Columns and rows of the pieces that a product is cut into."""
    if limit == 0 or n * k * m <= limit:
        return max(m, 1), max(n, 1)
    for n_columns in (min(m, 256), min(m, 64)):
        for n_rows in (16, 8, 4):
            if n_rows * k * n_columns <= limit:
                return n_columns, n_rows
    return m, n
