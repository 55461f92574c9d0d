"""Matmuls by the engine's own kernels: which ones they do, and the calls of one matmul.

The kernels (vectors.py) compute a few rows by a few vectors of columns.
"""

from __future__ import annotations

from dynbatch.harness.compiler.pointers import call, read_word
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.cpu_kernels.vectors import (
    BY_DOTS,
    COLUMNS,
    DOTS,
    LANES,
    MAX_ROWS,
    MAX_ROWS_OF_DOTS,
    MAX_VECTORS,
    PARTIAL,
    VECTOR_BYTES,
    WIDE,
    WIDE_ROWS,
)

# With vectors of half the size (AVX2), oneDNN is faster except for small matrices, few rows and
# packed matrices: 12, 64, 256 and 1 400 rows by 512 x 2 048 at 77, 71, 87 and 86 GFLOP/s (oneDNN
# 31, 40, 69 and 89), by 256 x 1 024 at 97, 95, 95 and 81 (35, 86, 45 and 94), on one Zen 3 core.
# With AVX-512, 12, 48, 128, 600 and 1 500 rows by a packed matrix of 256 x 1 024 run at 160, 183,
# 178, 171 and 169 (not packed: 127, 159, 170, 151 and 183), on one Xeon core.
OWN_ROWS, OWN_ROWS_TRANSPOSED, OWN_ROWS_OUTER = (24, 40, 512) if LANES == 16 else (0, 12, 12)
SMALL = 2**14  # elements of a matrix that fits into the L1 cache, or almost
BLOCK = LANES * MAX_VECTORS  # columns
# For more rows, oneDNN is faster: all rows of x are read from memory for every BLOCK.
PACKED_ROWS = 1024 if LANES == 16 else 2048
_BYTES = 4


@helper
def _select_kernels(width: int) -> int:
    """Return the number of the kernel of one row by `width` columns, at most BLOCK."""
    n_vectors = (width + LANES - 1) // LANES
    return 0 if width == BLOCK else PARTIAL + MAX_ROWS * (n_vectors - 1)


@helper
def multiply_rows(
    kernels: int, x: int, x_row: int, x_next: int, n: int, w: int, w_row: int, k: int, m: int,
    out: int, out_row: int, start: int, start_row: int,
) -> None:  # fmt: skip
    """Compute out = start + x w for n rows; x (n, k), w (k, m), m a multiple of COLUMNS.

    One or two rows leave registers free, so that a call takes twice as many columns and the rows of
    w need half as many passes. If these rows are 4 KiB apart, a pass leaves no cache line in the L1
    cache for the next one: one row by 256 x 1 024 runs at 51 GFLOP/s, and at 26 with blocks of half
    the width.

    Args:
        kernels: The address of the table of vectors.load_matmul_kernels.
        x: An address, like `w`, `out` and `start` (0 for zeros); each is followed by the bytes from
            one row to the next, which are 0 if all rows start from the same one.
        x_next: Bytes from one element of a row of x to the next.
    """
    first = 0
    if n <= WIDE_ROWS:
        first = m - m % (2 * BLOCK)
        for column in range(0, first if n > 0 else 0, 2 * BLOCK):
            call(read_word(kernels, WIDE + n - 1), (
                x, x_row, x_next, w + _BYTES * column, w_row, out + _BYTES * column, out_row, k,
                start + _BYTES * column if start != 0 else 0, start_row, LANES,
            ))  # fmt: skip
    for column in range(first, m, BLOCK):
        width = min(BLOCK, m - column)
        kind, n_last = _select_kernels(width), (width - 1) % LANES + 1
        for i in range(0, n, MAX_ROWS):
            call(read_word(kernels, kind + min(MAX_ROWS, n - i) - 1), (
                x + i * x_row, x_row, x_next, w + _BYTES * column, w_row,
                out + i * out_row + _BYTES * column, out_row, k,
                start + i * start_row + _BYTES * column if start != 0 else 0, start_row, n_last,
            ))  # fmt: skip


@helper
def multiply_packed(
    kernels: int, x: int, x_row: int, n: int, w: int, k: int, m: int, out: int, out_row: int,
    start: int, start_row: int,
) -> None:  # fmt: skip
    """Compute out = start + x w for n rows, see multiply_rows.

    Args:
        w: The address of a copy of w (k, m) by memory_kernels.pack_columns.
    """
    n_calls = (n + MAX_ROWS - 1) // MAX_ROWS
    n_rows = (n + n_calls - 1) // max(n_calls, 1)
    for column in range(0, m, BLOCK):
        width = min(BLOCK, m - column)
        kind, n_last = _select_kernels(width), (width - 1) % LANES + 1
        for i in range(0, n, max(n_rows, 1)):
            call(read_word(kernels, kind + min(n_rows, n - i) - 1), (
                x + i * x_row, x_row, _BYTES, w + _BYTES * column * k,
                _BYTES * count_padded(width), out + i * out_row + _BYTES * column, out_row, k,
                start + i * start_row + _BYTES * column if start != 0 else 0, start_row, n_last,
            ))  # fmt: skip


@helper
def count_padded(m: int) -> int:
    """Return the columns of a packed copy of a matrix with m columns."""
    return (m + LANES - 1) // LANES * LANES


def is_packed(k: int, m: int) -> bool:
    """Return whether few rows are multiplied by a packed copy of W (k, m), not by W."""
    return m % COLUMNS == 0 and k * m > SMALL


@helper
def multiply_rows_transposed(
    kernels: int, x: int, x_row: int, n: int, w: int, w_row: int, k: int, m: int, out: int,
    out_row: int, adds: int,
) -> None:  # fmt: skip
    """Compute out = x w^T for n rows, or out += it; x (n, k), w (m, k).

    k is a multiple of LANES, m of DOTS.
    """
    for i in range(0, n, MAX_ROWS_OF_DOTS):
        kernel = read_word(kernels, BY_DOTS + min(MAX_ROWS_OF_DOTS, n - i) - 1)
        for j in range(0, m, DOTS):
            call(kernel, (
                x + i * x_row, x_row, w + j * w_row, w_row, out + i * out_row + _BYTES * j, out_row,
                _BYTES * k // VECTOR_BYTES, adds,
            ))  # fmt: skip


@helper
def is_ours(n: int, k: int, m: int, transposed: bool) -> bool:
    """Return whether these kernels multiply n rows by W (k, m), or by W^T of W (m, k)."""
    if transposed:
        return n <= OWN_ROWS_TRANSPOSED and k % LANES == 0 and m % DOTS == 0
    return m % COLUMNS == 0 and (n <= OWN_ROWS or k * m <= SMALL)


@helper
def is_our_outer(n: int, m: int) -> bool:
    """Return whether these kernels compute x^T dy of n rows; dy (n, m)."""
    return n <= OWN_ROWS_OUTER and m % COLUMNS == 0
