"""Matrix products from compiled code: libraries called without Python in between.

torch.mm costs about 5 us a call in Python alone, as much as the product itself for a batch of four
vertices. compiled code calls the libraries (libraries.py) by their addresses instead,
which it is handed with the rest: machine code that is kept on disk knows none.

Products of few rows are our own (own_products.py), where no library was asked for by name and
columns are whole vectors. Of the others oneDNN does what has several rows. What is left to
OpenBLAS, and where oneDNN is missing:

- fewer than ONEDNN_ROWS rows, on AVX-512 machines: there OpenBLAS has kernels for small products
  (m n k <= 10^6) that neither pack nor copy, and larger ones are cut into such. GFLOP/s on one
  Zen 5 core, by weights of 256 x 1 024: 4 rows 136 (oneDNN 76), 8 rows 138 (173);
- one or two rows with W^T, which is read as it lies (from three on it would be rearranged);
- many rows with W^T, whole: 1 500 rows by 1 024 x 256 at 215 (oneDNN 198);
- from WHOLE_ROWS rows on nothing is cut: 1 500 rows at 225 whole, 174 cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.cpu_kernels.foreign import call
from harness.engine.cpu_kernels.libraries import (
    LIBRARY,
    ONEDNN,
    ONEDNN_PACKAGE,
    OPENBLAS_PACKAGE,
    Library,
    OneDNN,
    one_thread,
    torchs_mkl,
)
from harness.engine.cpu_kernels.own_products import (
    is_our_outer,
    is_ours,
    rows_times,
    rows_times_transposed,
)
from harness.engine.cpu_kernels.vectors import LANES
from harness.errors import UnsupportedTrial
from harness.machine.compiled import compiled_with

ONEDNN_ROWS, ONEDNN_ROWS_TRANSPOSED, WHOLE_ROWS, MANY_ROWS = 6, 3, 96, 256
NEVER = 2**30
# sizes[LIMIT]: the largest product that is not cut, 0 where none is; sizes[ONEDNN_FROM]: from how
# many rows on oneDNN multiplies; sizes[SGEMM] and the next two: addresses; sizes[OWN]: whether
# products of few rows are our own.
N_SIZES, LIMIT, ONEDNN_FROM, SGEMM, ONEDNN_SGEMM, ONEDNN_HALF, OWN = 12, 6, 7, 8, 9, 10, 11
N_FACTORS = 2
N_HALVES = 2**18  # bfloat16 that are rounded at a time: 512 KiB, half of a Zen 4 core's L2
PLAIN, TRANSPOSED = ord("N"), ord("T")

Scratch = tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.float32]]


def blas_scratch(
    library: Library, onednn: OneDNN | None = None, onednn_from: int = NEVER, *, own: bool = False
) -> Scratch:
    """Arrays that `multiply` wants as its last arguments; not to be shared between threads.

    Fortran takes every argument by address; these hold sizes, letters (not transposed,
    transposed) and factors (0, 1, and room for N_HALVES of bfloat16). A library with sizes of 32
    bits reads the lower half of one, which is the first on all machines that numba compiles for.
    """
    sizes = np.zeros(N_SIZES, dtype=np.int64)
    sizes[LIMIT], sizes[SGEMM] = library.limit, library.address
    sizes[ONEDNN_FROM] = NEVER if onednn is None else onednn_from
    sizes[ONEDNN_SGEMM] = 0 if onednn is None else onednn.address
    sizes[ONEDNN_HALF] = 0 if onednn is None else onednn.half_address
    sizes[OWN] = own
    letters = np.frombuffer(b"NT", dtype=np.uint8).copy()
    factors = np.zeros(N_FACTORS + N_HALVES // 2, dtype=np.float32)
    factors[1] = 1.0
    return sizes, letters, factors


@dataclass(frozen=True, slots=True)
class Multiplying:
    """What multiplies for one engine: arrays for compiled code, threads in use, and in words.

    enter: what another thread does before it multiplies.
    """

    scratch: Scratch
    n_threads: int
    names: str
    enter: Callable[[], object]

    def for_thread(self) -> Scratch:
        """Arrays for one more thread."""
        sizes, letters, factors = self.scratch
        return sizes.copy(), letters.copy(), factors.copy()


def multiplying(blas: str, n_threads: int) -> Multiplying:
    """Let the libraries of the switch `blas` use n threads; a plain library has but one.

    Only whole products can be shared, so that several threads cut nothing. Raises UnsupportedTrial
    where there is no such library.
    """
    library = library_of(blas)
    onednn = ONEDNN if blas == "auto" else None
    library.set_threads(n_threads)
    if onednn is not None:
        onednn.set_threads(n_threads)
    # From fewer rows where the library cuts nothing.
    own = blas == "auto"
    scratch = blas_scratch(library, onednn, ONEDNN_ROWS if library.limit else 1, own=own)
    if n_threads > 1:
        scratch[0][LIMIT] = 0
    names = [f"own ({LANES} lanes)"] if own else []
    names += [f"oneDNN {onednn.version}"] if onednn is not None else []
    n_used = 1 if library.set_threads is one_thread else n_threads
    # oneDNN has its number of threads from OpenMP, which keeps one for each thread that calls.
    enter = partial(onednn.set_threads, n_threads) if onednn is not None else _nothing
    return Multiplying(scratch, n_used, ", ".join([*names, library.name]), enter)


def why_no_halves(blas: str) -> str | None:
    """Why products of bfloat16 cannot be made here, and what to do; None where they can."""
    if blas != "auto":
        return f"multiplies by oneDNN, which blas={blas} excludes; leave one of the two out"
    if ONEDNN is None:
        return f"needs oneDNN; pip install {ONEDNN_PACKAGE} (x86-64, Linux), or leave it out"
    if not ONEDNN.half_address:
        return (
            "needs a CPU with AVX-512 BF16 or AMX, of which oneDNN finds"
            f" {ONEDNN.kernels} here; leave it out"
        )
    return None


def _nothing() -> None:
    """All other libraries have one number of threads."""


def library_of(blas: str) -> Library:
    """The library of the switch `blas`; raises UnsupportedTrial where there is none."""
    if blas == "torch":
        found, what = torchs_mkl(), "no MKL is inside the installed torch; use blas=openblas"
    else:
        found, what = (
            LIBRARY,
            (
                "no library with sgemm was found, neither a package's nor one of the system's;"
                f" pip install {OPENBLAS_PACKAGE}, or use backend=stepwise"
            ),
        )
    if found is None:
        raise UnsupportedTrial(what)
    return found


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
    if sizes[OWN] != 0 and is_ours(n, k, m, transposed):
        w_data, adds = weight.ctypes.data, 1 if accumulate else 0
        if transposed:
            rows_times_transposed(
                x_data, 4 * x_stride, n, w_data, 4 * columns, k, m, out_data, 4 * out_stride, adds
            )
        else:
            rows_times(
                x_data, 4 * x_stride, 4, n, w_data, 4 * columns, k, m, out_data, 4 * out_stride,
                adds,
            )  # fmt: skip
        return
    onednn_from = sizes[ONEDNN_FROM]
    if transposed and sizes[ONEDNN_SGEMM] != 0:
        onednn_from = min(onednn_from, ONEDNN_ROWS_TRANSPOSED)
    if n >= onednn_from and not (transposed and n >= MANY_ROWS):
        call(sizes[ONEDNN_SGEMM], (
            np.int32(PLAIN), np.int32(TRANSPOSED if transposed else PLAIN), n, m, k,
            np.float32(1.0), x_data, x_stride, weight.ctypes.data, columns,
            np.float32(1.0 if accumulate else 0.0), out_data, out_stride,
        ))  # fmt: skip
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
            call(sizes[SGEMM], (
                letter + (1 if transposed else 0), letter, size, size + step, size + 2 * step,
                factor + 4, weight.ctypes.data + 4 * w_at, size + 3 * step,
                x_data + 4 * row * x_stride, size + 4 * step,
                factor + (4 if accumulate else 0),
                out_data + 4 * (row * out_stride + column), size + 5 * step,
            ))  # fmt: skip


@compiled_with(constants=False, error_model="numpy")
def multiply_strided(
    x: Any, x_at: int, x_stride: int, n: int, k: int,
    y: Any, y_at: int, y_stride: int, m: int, transposed: bool,
    out: Any, out_at: int, out_stride: int, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """out = x y, or x y^T, of columns of wider rows on both sides: x (n, k), out (n, m)."""
    x_data, y_data = x.ctypes.data + 4 * x_at, y.ctypes.data + 4 * y_at
    out_data = out.ctypes.data + 4 * out_at
    if n >= sizes[ONEDNN_FROM]:
        call(sizes[ONEDNN_SGEMM], (
            np.int32(PLAIN), np.int32(TRANSPOSED if transposed else PLAIN), n, m, k,
            np.float32(1.0), x_data, x_stride, y_data, y_stride,
            np.float32(0.0), out_data, out_stride,
        ))  # fmt: skip
        return
    sizes[0], sizes[1], sizes[2] = m, n, k
    sizes[3], sizes[4], sizes[5] = y_stride, x_stride, out_stride
    step, size = sizes.itemsize, sizes.ctypes.data
    letter, factor = letters.ctypes.data, factors.ctypes.data
    call(sizes[SGEMM], (
        letter + (1 if transposed else 0), letter, size, size + step, size + 2 * step,
        factor + 4, y_data, size + 3 * step, x_data, size + 4 * step,
        factor, out_data, size + 5 * step,
    ))  # fmt: skip


@compiled_with(constants=False, error_model="numpy")
def add_outer(
    x: Any, x_at: int, x_stride: int, dy: Any, dy_at: int, dy_stride: int, n: int,
    out: Any, written: Any, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """out += x^T dy, summed over n rows, or out = it where nothing was written yet; out (k, m).

    Cut into pieces of 128 x 32 x 128 where small products are fast.
    """
    k, m = out.shape
    if k == 0:  # a thread that has no part in it
        return
    x_data, dy_data = x.ctypes.data + 4 * x_at, dy.ctypes.data + 4 * dy_at
    if sizes[OWN] != 0 and is_our_outer(n, m):
        adds = 0 if written[0] == 0 else 1
        rows_times(
            x_data, 4, 4 * x_stride, k, dy_data, 4 * dy_stride, n, m, out.ctypes.data, 4 * m, adds
        )
        written[0] = 1
        return
    if n >= sizes[ONEDNN_FROM]:
        call(sizes[ONEDNN_SGEMM], (
            np.int32(TRANSPOSED), np.int32(PLAIN), k, m, n, np.float32(1.0), x_data, x_stride,
            dy_data, dy_stride, np.float32(0.0 if written[0] == 0 else 1.0), out.ctypes.data, m,
        ))  # fmt: skip
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
                call(sizes[SGEMM], (
                    letter, letter + 1, size, size + step, size + 2 * step, factor + 4,
                    dy_data + 4 * (row * dy_stride + column), size + 3 * step,
                    x_data + 4 * (row * x_stride + i), size + 4 * step, factor + 4,
                    out.ctypes.data + 4 * (i * m + column), size + 5 * step,
                ))  # fmt: skip


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
