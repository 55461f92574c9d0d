"""Matmuls from compiled code, without Python in between.

One call of torch.mm takes about 5 us in Python alone, as long as the matmul itself for a batch of
four vertices. Compiled code calls the libraries (libraries.py) by address instead. Addresses are
arguments, because machine code that is cached on disk must not contain any.

The engine's own kernels (own_matmuls.py) multiply few rows, unless a library was requested by name.
oneDNN does most of the others. OpenBLAS does everything else if oneDNN is missing, and these:

- fewer than ONEDNN_ROWS rows on AVX-512 machines: there, OpenBLAS has kernels for small matmuls (up
  to 10^6 multiplications) that neither pack nor copy, and larger matmuls are cut into such pieces.
  GFLOP/s on one Zen 5 core, with weights of 256 x 1 024: 4 rows 136 (oneDNN 76), 8 rows 138 (173);
- one or two rows by W^T, which is read in place (from three rows on, it would be rearranged);
- many rows by W^T, in one piece: 1 500 rows by 1 024 x 256 at 215 (oneDNN 198);
- WHOLE_ROWS rows or more are not cut: 1 500 rows at 225 in one piece, 174 in several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.pointers import call, copy_bytes, put_word, read_word
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.cpu_kernels.context import FACTORS, LETTERS, SIZES
from dynbatch.harness.engine.cpu_kernels.libraries import (
    LIBRARY,
    ONEDNN,
    OPENBLAS_PACKAGE,
    MatmulLibrary,
)
from dynbatch.harness.engine.cpu_kernels.own_matmuls import (
    is_our_outer,
    is_ours,
    multiply_rows,
    multiply_rows_transposed,
)
from dynbatch.harness.engine.cpu_kernels.vectors import LANES, load_matmul_kernels
from dynbatch.harness.errors import UnsupportedTrial

ONEDNN_ROWS, ONEDNN_ROWS_TRANSPOSED, WHOLE_ROWS, MANY_ROWS = 6, 3, 96, 256
NEVER = 2**30
# sizes[LIMIT]: the largest matmul that is not cut, 0 if none is cut; sizes[ONEDNN_FROM]: the number
# of rows from which oneDNN multiplies; sizes[SGEMM] and the next one: addresses; sizes[OWN]: the
# address of the table of the engine's own kernels (load_matmul_kernels), 0 if they are unused.
N_SIZES, LIMIT, ONEDNN_FROM, SGEMM, ONEDNN_SGEMM, OWN = 11, 6, 7, 8, 9, 10
PLAIN, TRANSPOSED = ord("N"), ord("T")

Scratch = tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.float32]]


def make_blas_scratch(
    library: MatmulLibrary,
    onednn: MatmulLibrary | None = None,
    onednn_from: int = NEVER,
    *,
    own: bool = False,
) -> Scratch:
    """Return arrays that `multiply` needs in its context, one set per thread.

    Fortran passes every argument by address. These arrays hold sizes, letters (not transposed,
    transposed) and factors (0 and 1). A library with sizes of 32 bits reads the lower half of a
    size, which comes first on little-endian machines.
    """
    sizes = np.zeros(N_SIZES, dtype=np.int64)
    sizes[LIMIT], sizes[SGEMM] = library.limit, library.address
    sizes[ONEDNN_FROM] = NEVER if onednn is None else onednn_from
    sizes[ONEDNN_SGEMM] = 0 if onednn is None else onednn.address
    sizes[OWN] = load_matmul_kernels()[1].ctypes.data if own else 0
    letters = np.frombuffer(b"NT", dtype=np.uint8).copy()
    return sizes, letters, np.array([0.0, 1.0], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Multiplying:
    """Libraries that multiply for one engine.

    Attributes:
        scratch: Arrays for compiled code.
        names: The libraries as text.
        enter: A function that another thread calls before it multiplies.
    """

    scratch: Scratch
    names: str
    enter: Callable[[], object]

    @property
    def has_own_kernels(self) -> bool:
        return bool(self.scratch[0][OWN])

    def copy_for_thread(self) -> Scratch:
        """Return arrays for one more thread."""
        sizes, letters, factors = self.scratch
        return sizes.copy(), letters.copy(), factors.copy()


def prepare_libraries(blas: str, n_threads: int) -> Multiplying:
    """Prepare the libraries of the switch `blas` for n threads; a plain library has one thread.

    Libraries can only distribute whole matmuls, so matmuls are not cut for several threads.

    Raises:
        UnsupportedTrial: The library is missing.
    """
    library = require_library()
    onednn = ONEDNN if blas == "auto" else None
    library.set_threads(n_threads)
    if onednn is not None:
        onednn.set_threads(n_threads)
    # oneDNN multiplies fewer rows, too, if the other library has no kernels for small matmuls.
    own = blas == "auto"
    scratch = make_blas_scratch(library, onednn, ONEDNN_ROWS if library.limit else 1, own=own)
    if n_threads > 1:
        scratch[0][LIMIT] = 0
    names = [f"own ({LANES} lanes)"] if own else []
    names += [onednn.name] if onednn is not None else []
    # oneDNN reads its number of threads from OpenMP, which stores one for each calling thread.
    enter = partial(onednn.set_threads, n_threads) if onednn is not None else _do_nothing
    return Multiplying(scratch, ", ".join([*names, library.name]), enter)


def _do_nothing() -> None:
    """Do nothing, because all other libraries have one number of threads per process."""


def require_library() -> MatmulLibrary:
    """Return the library with sgemm.

    Raises:
        UnsupportedTrial: The library is missing.
    """
    if LIBRARY is None:
        raise UnsupportedTrial(
            f"no library with sgemm found; pip install {OPENBLAS_PACKAGE}, or use backend=stepwise"
        )
    return LIBRARY


@helper
def multiply(
    context: int, x: int, x_row: int, n: int, w: int, rows: int, columns: int, transposed: int,
    out: int, out_row: int, start: int, start_row: int,
) -> None:  # fmt: skip
    """Compute out = start + x W for n rows, or start + x W^T if `transposed`.

    Args:
        context: The address of the thread's context, which has scratch arrays for libraries.
        x: An address, like `w`, `out` and `start`, which is 0 for zeros.
        x_row: Bytes from one row to the next, like `out_row` and `start_row`, which is 0 if all
            rows start from the same one.
        rows: Rows of W, which is (rows, columns).
    """
    sizes = read_word(context, SIZES)
    k, m = (columns, rows) if transposed != 0 else (rows, columns)
    kernels = read_word(sizes, OWN)
    is_own = kernels != 0 and is_ours(n, k, m, transposed != 0)
    if is_own and transposed == 0:
        multiply_rows(kernels, x, x_row, 4, n, w, 4 * columns, k, m, out, out_row, start, start_row)
        return
    if start != 0 and start != out:
        for i in range(n):
            copy_bytes(out + i * out_row, start + i * start_row, 4 * m)
    adds = 1 if start != 0 else 0
    if is_own:
        multiply_rows_transposed(kernels, x, x_row, n, w, 4 * columns, k, m, out, out_row, adds)
        return
    onednn_from = read_word(sizes, ONEDNN_FROM)
    if transposed != 0 and read_word(sizes, ONEDNN_SGEMM) != 0:
        onednn_from = min(onednn_from, ONEDNN_ROWS_TRANSPOSED)
    if n >= onednn_from and not (transposed != 0 and n >= MANY_ROWS):
        call_onednn(
            read_word(sizes, ONEDNN_SGEMM), PLAIN, TRANSPOSED if transposed != 0 else PLAIN, n,
            m, k,
            x, x_row // 4, w, columns, adds, out, out_row // 4,
        )  # fmt: skip
        return
    limit = 0 if transposed != 0 or n >= WHOLE_ROWS else read_word(sizes, LIMIT)
    n_columns, n_rows = _tile(n, k, m, limit)
    # Row-major out = x W is column-major out^T = W^T x^T.
    for column in range(0, m, n_columns):
        w_at = column * columns if transposed != 0 else column
        for row in range(0, n, n_rows):
            call_blas(
                context, transposed, 0, min(n_columns, m - column), min(n_rows, n - row), k,
                w + 4 * w_at, columns, x + row * x_row, x_row // 4, adds,
                out + row * out_row + 4 * column, out_row // 4,
            )  # fmt: skip


@helper
def multiply_values(
    context: int, x: int, x_row: int, n: int, k: int, y: int, y_row: int, m: int, transposed: int,
    out: int, out_row: int,
) -> None:  # fmt: skip
    """Compute out = x y, or x y^T, for columns of wider rows: x (n, k), out (n, m)."""
    sizes = read_word(context, SIZES)
    if n >= read_word(sizes, ONEDNN_FROM):
        call_onednn(
            read_word(sizes, ONEDNN_SGEMM), PLAIN, TRANSPOSED if transposed != 0 else PLAIN, n,
            m, k,
            x, x_row // 4, y, y_row // 4, 0, out, out_row // 4,
        )  # fmt: skip
    else:
        call_blas(
            context, transposed, 0, m, n, k, y, y_row // 4, x, x_row // 4, 0, out, out_row // 4
        )


@helper
def add_outer(
    context: int, x: int, x_row: int, k: int, dy: int, dy_row: int, m: int, n: int, out: int,
    adds: int,
) -> None:  # fmt: skip
    """Compute out = x^T dy, or add it to out if `adds`: x (n, k), dy (n, m), out (k, m).

    The matmul is cut into pieces of 128 x 32 x 128 if small matmuls are fast.
    """
    sizes = read_word(context, SIZES)
    kernels = read_word(sizes, OWN)
    if kernels != 0 and is_our_outer(n, m):
        start = out if adds != 0 else 0
        multiply_rows(kernels, x, 4, x_row, k, dy, dy_row, n, m, out, 4 * m, start, 4 * m)
        return
    if n >= read_word(sizes, ONEDNN_FROM):
        call_onednn(
            read_word(sizes, ONEDNN_SGEMM), TRANSPOSED, PLAIN, k, m, n, x, x_row // 4, dy,
            dy_row // 4,
            adds, out, m,
        )  # fmt: skip
        return
    n_rows, n_columns, n_inner = 128, 32, 128
    if read_word(sizes, LIMIT) == 0:
        n_rows, n_columns, n_inner = max(m, 1), max(k, 1), max(n, 1)
    if n == 0 and adds == 0:  # otherwise no piece would write to out
        n_inner = 1
        call_blas(context, 0, 1, m, k, 0, dy, dy_row // 4, x, x_row // 4, 0, out, m)
    for row in range(0, n, n_inner):
        for column in range(0, m, n_rows):
            for i in range(0, k, n_columns):
                call_blas(
                    context, 0, 1, min(n_rows, m - column), min(n_columns, k - i),
                    min(n_inner, n - row), dy + row * dy_row + 4 * column, dy_row // 4,
                    x + row * x_row + 4 * i, x_row // 4, 1 if row > 0 else adds,
                    out + 4 * (i * m + column), m,
                )  # fmt: skip


@helper
def call_onednn(
    address: int, form_x: int, form_y: int, n: int, m: int, k: int, x: int, x_stride: int, y: int,
    y_stride: int, adds: int, out: int, out_stride: int,
) -> None:  # fmt: skip
    """Call oneDNN's matmul of row-major matrices; strides are in elements."""
    call(address, (
        np.int32(form_x), np.int32(form_y), n, m, k, np.float32(1.0), x, x_stride, y, y_stride,
        np.float32(adds), out, out_stride,
    ))  # fmt: skip


@helper
def call_blas(
    context: int, form_x: int, form_y: int, n: int, m: int, k: int, x: int, x_stride: int, y: int,
    y_stride: int, adds: int, out: int, out_stride: int,
) -> None:  # fmt: skip
    """Call sgemm of column-major matrices, each plain (0) or transposed (1); out has n columns."""
    sizes, letters = read_word(context, SIZES), read_word(context, LETTERS)
    factors = read_word(context, FACTORS)
    put_word(sizes, 0, n)
    put_word(sizes, 1, m)
    put_word(sizes, 2, k)
    put_word(sizes, 3, x_stride)
    put_word(sizes, 4, y_stride)
    put_word(sizes, 5, out_stride)
    call(read_word(sizes, SGEMM), (
        letters + form_x, letters + form_y, sizes, sizes + 8, sizes + 16, factors + 4, x,
        sizes + 24, y, sizes + 32, factors + (4 if adds != 0 else 0), out, sizes + 40,
    ))  # fmt: skip


@helper
def _tile(n: int, k: int, m: int, limit: int) -> tuple[int, int]:
    """Return the columns and rows of the pieces that a matmul is cut into."""
    if limit == 0 or n * k * m <= limit:
        return max(m, 1), max(n, 1)
    for n_columns in (min(m, 256), min(m, 64)):
        for n_rows in (16, 8, 4):
            if n_rows * k * n_columns <= limit:
                return n_columns, n_rows
    return m, n
