"""Matrix products of our own (vectors.py), for the shapes at which libraries are behind them.

Libraries are made for many rows: they pack what they multiply. GFLOP/s on one Zen 4 core, of ours
and of the better of oneDNN and OpenBLAS, by the rows of x:

                     1        2        4        8        16       32       64
    W 64 x 192       46, 46   79, 74   90, 88   94, 72   93, 83   93, 87   95, 91
    W 256 x 1 024    52, 46   96, 60   87, 73   91, 95   98, 94   96, 94   110, 108
    W^T 64 x 192     55, 50   97, 88   97, 96   96, 98   92, 100  96, 77   98, 89
    W^T 256 x 1 024  42, 41   64, 62   83, 57   86, 68   93, 34   105, 54  76, 67
    x^T dy, 256 x 256, of 2, 8, 40, 400 and 1 500 rows: 62, 78, 109, 117 and 97; 49, 78, 101, 113
    and 108.
"""

from __future__ import annotations

from harness.compiler.pointers import call, word
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.vectors import (
    BY_DOTS,
    BY_VECTOR,
    BY_VECTORS,
    DOTS,
    LANES,
    MOST_ROWS,
    MOST_ROWS_OF_DOTS,
    MOST_VECTORS,
    VECTOR_BYTES,
    WIDE,
    WIDE_ROWS,
)

# With vectors of half the size (AVX2) oneDNN is ahead for all but small matrices and few rows.
OWN_ROWS, OWN_ROWS_TRANSPOSED, OWN_ROWS_OUTER = (24, 40, 512) if LANES == 16 else (0, 12, 12)
SMALL = 2**14  # a matrix that stays in the fastest cache, or nearly so
BLOCK = LANES * MOST_VECTORS  # columns
_BYTES = 4


@helper
def rows_times(
    kernels: int, x: int, x_row: int, x_next: int, n: int, w: int, w_row: int, k: int, m: int,
    out: int, out_row: int, adds: int,
) -> None:  # fmt: skip
    """Compute out = x w for n rows, or out += it; x (n, k), w (k, m), m a multiple of LANES.

    Addresses, and behind each the bytes from one row to the next; x_next: from one element of a row
    of x to the next. kernels: the table of vectors.load_products.

    One or two rows leave registers free: half as many passes over the rows of w. Where these are
    4 KiB apart, a pass finds no line of the next one in the fastest cache: one row by 256 x 1 024
    runs at 51 GFLOP/s so, and at 26 by blocks of half the width.
    """
    first = 0
    if n <= WIDE_ROWS:
        first = m - m % (2 * BLOCK)
        for column in range(0, first if n > 0 else 0, 2 * BLOCK):
            call(word(kernels, WIDE + n - 1), (
                x, x_row, x_next, w + _BYTES * column, w_row, out + _BYTES * column, out_row, k,
                adds,
            ))  # fmt: skip
    for column in range(first, m, BLOCK):
        is_whole = column + BLOCK <= m
        step = BLOCK if is_whole else LANES
        for j in range(column, min(column + BLOCK, m), step):
            for i in range(0, n, MOST_ROWS):
                table = BY_VECTORS if is_whole else BY_VECTOR
                call(word(kernels, table + min(MOST_ROWS, n - i) - 1), (
                    x + i * x_row, x_row, x_next, w + _BYTES * j, w_row,
                    out + i * out_row + _BYTES * j, out_row, k, adds,
                ))  # fmt: skip


@helper
def rows_times_transposed(
    kernels: int, x: int, x_row: int, n: int, w: int, w_row: int, k: int, m: int, out: int,
    out_row: int, adds: int,
) -> None:  # fmt: skip
    """Compute out = x w^T for n rows, or out += it; x (n, k), w (m, k).

    k is a multiple of LANES, m of DOTS.
    """
    for i in range(0, n, MOST_ROWS_OF_DOTS):
        kernel = word(kernels, BY_DOTS + min(MOST_ROWS_OF_DOTS, n - i) - 1)
        for j in range(0, m, DOTS):
            call(kernel, (
                x + i * x_row, x_row, w + j * w_row, w_row, out + i * out_row + _BYTES * j, out_row,
                _BYTES * k // VECTOR_BYTES, adds,
            ))  # fmt: skip


@helper
def is_ours(n: int, k: int, m: int, transposed: bool) -> bool:
    """Whether n rows are multiplied here, by W (k, m) or by W^T of W (m, k)."""
    if transposed:
        return n <= OWN_ROWS_TRANSPOSED and k % LANES == 0 and m % DOTS == 0
    return m % LANES == 0 and (n <= OWN_ROWS or k * m <= SMALL)


@helper
def is_our_outer(n: int, m: int) -> bool:
    """Whether x^T dy of n rows is made here; dy (n, m)."""
    return n <= OWN_ROWS_OUTER and m % LANES == 0
