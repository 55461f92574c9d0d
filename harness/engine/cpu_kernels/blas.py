"""Matrix products from compiled code: BLAS without Python in between.

torch.mm costs about 5 us a call in Python alone, as much as the product itself for a batch of four
vertices. numba calls `sgemm` by its address instead: that of the OpenBLAS that NumPy brings, or
else of a library that the system has.

On AVX-512 machines OpenBLAS has kernels for small products (m n k <= 10^6) that neither pack nor
copy. On one Zen 4 core, 128 x 512 weights: 107, 112 and 79 GFLOP/s for 4, 8 and 16 rows, where
torch's MKL reaches 44, 61 and 77. So larger products are cut into such small ones, which gives 113
GFLOP/s from 16 rows on, 10 % above the best that either library reaches whole. Products with W^T
stay whole: Tree-LSTM's backward pass takes 38 ms so, and 43 ms cut (hidden 256, 64 trees).
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
from numba.core import types
from numpy.typing import NDArray

from harness.machine.compiled import compiled_with

SYMBOL = "dynamic_batching_sgemm"
SMALL = 10**6  # multiplications in OpenBLAS's largest small product
SMALL_CORES = (b"SkylakeX", b"Cooperlake", b"SapphireRapids")
N_SIZES, LIMIT = 7, 6  # sizes[LIMIT]: the largest product that is not cut, 0 where none is


@dataclass(frozen=True, slots=True)
class Library:
    """An sgemm.

    integer: of its sizes. limit: the largest product to hand it at once, 0 for any.
    """

    name: str
    integer: type[np.signedinteger[Any]]
    limit: int
    set_threads: Callable[[int], object]


def _openblas() -> tuple[Any, Library] | None:
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("libscipy_openblas64_*")):
        try:
            library = ctypes.CDLL(str(path))
            function, set_threads = (
                library.scipy_sgemm_64_,
                library.scipy_openblas_set_num_threads64_,
            )
            core = library.scipy_openblas_get_corename64_
        except (OSError, AttributeError):
            continue
        core.restype = ctypes.c_char_p
        limit = SMALL if core() in SMALL_CORES else 0
        return function, Library("OpenBLAS", np.int64, limit, set_threads)
    return None


def _system_blas() -> tuple[Any, Library] | None:
    """One that is installed apart from NumPy, where NumPy brings none (as conda's does not)."""
    for name, setter in (
        ("openblas", "openblas_set_num_threads"),
        ("mkl_rt", "MKL_Set_Num_Threads"),
        ("blas", ""),
    ):
        path = ctypes.util.find_library(name)
        try:
            library = ctypes.CDLL(path) if path else None
            function = library.sgemm_ if library else None
        except (OSError, AttributeError):
            continue
        if function is not None:
            set_threads = getattr(library, setter, None) if setter else None
            return function, Library(name, np.int32, 0, set_threads or _one_thread)
    return None


def _one_thread(n: int) -> None:
    """A library without threads."""


def _register() -> Library | None:
    """Make an sgemm known to the compiler by a name of our own; None where there is none."""
    found = _openblas() or _system_blas()
    if found is None:
        return None
    function, library = found
    llvmlite.binding.add_symbol(SYMBOL, ctypes.cast(function, ctypes.c_void_p).value)
    return library


LIBRARY = _register()
_sgemm: Any = types.ExternalFunction(SYMBOL, types.void(*[types.intp] * 13))


def blas_scratch(library: Library) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.float32]]:
    """Arrays that `multiply` wants as its last arguments; not to be shared between threads.

    Fortran takes every argument by address; these hold sizes, letters (not transposed,
    transposed) and factors (0, 1).
    """
    sizes = np.zeros(N_SIZES, dtype=library.integer)
    sizes[LIMIT] = library.limit
    letters = np.frombuffer(b"NT", dtype=np.uint8).copy()
    return sizes, letters, np.array([0.0, 1.0], dtype=np.float32)


SCRATCH = None if LIBRARY is None else blas_scratch(LIBRARY)


def set_threads(n: int) -> int:
    """Let products use n threads, and return how many they will: a plain library has but one.

    Only whole products can be shared, so that several threads cut nothing.
    """
    if LIBRARY is None or SCRATCH is None:
        return 1
    LIBRARY.set_threads(n)
    SCRATCH[0][LIMIT] = LIBRARY.limit if n == 1 else 0
    return 1 if LIBRARY.set_threads is _one_thread else n


@compiled_with(error_model="numpy")
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
    n_columns, n_rows = _tile(n, k, m, 0 if transposed else sizes[LIMIT])
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


@compiled_with(error_model="numpy")
def add_outer(
    x: Any, x_at: int, x_stride: int, dy: Any, dy_at: int, dy_stride: int, n: int,
    out: Any, written: Any, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """out += x^T dy, summed over n rows, or out = it where nothing was written yet; out (k, m).

    Cut into pieces of 128 x 32 x 128 where small products are fast.
    """
    k, m = out.shape
    if written[0] == 0:
        out[:] = 0.0
        written[0] = 1
    n_rows, n_columns, n_inner = 128, 32, 128
    if sizes[LIMIT] == 0:
        n_rows, n_columns, n_inner = max(m, 1), max(k, 1), max(n, 1)
    sizes[3], sizes[4], sizes[5] = dy_stride, x_stride, m
    step, size = sizes.itemsize, sizes.ctypes.data
    letter, factor = letters.ctypes.data, factors.ctypes.data
    x_data, dy_data = x.ctypes.data + 4 * x_at, dy.ctypes.data + 4 * dy_at
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


@compiled_with(error_model="numpy")
def _tile(n: int, k: int, m: int, limit: int) -> tuple[int, int]:  # pragma: no cover - compiled
    """Columns and rows of the pieces that a product is cut into."""
    if limit == 0 or n * k * m <= limit:
        return max(m, 1), max(n, 1)
    for n_columns in (min(m, 256), min(m, 64)):
        for n_rows in (16, 8, 4):
            if n_rows * k * n_columns <= limit:
                return n_columns, n_rows
    return m, n
