"""What generated code does to rows besides products and fused groups.

Every function takes whole arrays and the element (or row) at which its rows begin. Loops run over
slices: an index such as `at + j` could be negative for all that the compiler knows, and a loop that
asks that of every element is not vectorised (adding up 1 500 rows of 10 000: 1.7 against 13 ms).
"""

from __future__ import annotations

from typing import Any

from numba.core import types

from harness.engine.cpu_kernels.fast_math import FAST
from harness.engine.cpu_kernels.shares import ROWS, share
from harness.machine.compiled import compiled_with

# That of the C library: for rows of 2 kB three times as fast as a loop (looking up what 64 lattices
# of LatticeLSTM need, hidden 128: 0.7 against 2.2 ms on one Zen 4 core).
_memcpy: Any = types.ExternalFunction("memcpy", types.voidptr(types.intp, types.intp, types.intp))


@compiled_with(constants=False, error_model="numpy")
def copy(
    out: Any, out_at: int, source: Any, source_at: int, n: int
) -> None:  # pragma: no cover - compiled
    """Copy n elements, from and to elements of C-contiguous float32 arrays."""
    _memcpy(out.ctypes.data + 4 * out_at, source.ctypes.data + 4 * source_at, 4 * n)


@compiled_with(constants=False, error_model="numpy")
def gather_rows(
    states: Any, index: Any, first: int, buffer: Any, row: int, n: int, n_slots: int
) -> Any:  # pragma: no cover - compiled
    """Bring the states that index[first:] names side by side; returns the bytes copied."""
    width = states.shape[1]
    for m in range(n):
        for slot in range(n_slots):
            at = ((row + m) * n_slots + slot) * width
            copy(buffer, at, states, index[first + m * n_slots + slot] * width, width)
    return 4 * n * n_slots * width


@compiled_with(constants=False, error_model="numpy")
def copy_block(
    source: Any, source_at: int, source_stride: int,
    out: Any, out_at: int, out_stride: int, n: int, width: int,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    """Copy columns; returns the bytes copied."""
    for m in range(n):
        copy(out, out_at + m * out_stride, source, source_at + m * source_stride, width)
    return 4 * n * width


@compiled_with(error_model="numpy")
def fill_block(
    out: Any, out_at: int, out_stride: int, n: int, width: int, value: float
) -> None:  # pragma: no cover - compiled
    """Set columns to a value."""
    to = out.reshape(out.size)
    for m in range(n):
        begin = out_at + m * out_stride
        row = to[begin : begin + width]
        for j in range(len(row)):
            row[j] = value


@compiled_with(constants=False, error_model="numpy")
def fill_rows(
    out: Any, out_at: int, out_stride: int, n: int, values: Any
) -> None:  # pragma: no cover - compiled
    """Set every row to the same values: a bias, before a product is added to it."""
    for m in range(n):
        copy(out, out_at + m * out_stride, values, 0, len(values))


@compiled_with(constants=False, error_model="numpy")
def look_up(
    table: Any, rows: Any, start: int, out: Any, out_at: int, out_stride: int, n: int
) -> None:  # pragma: no cover - compiled
    """Copy the rows of a table that rows[start:] names."""
    width = table.shape[1]
    for m in range(n):
        copy(out, out_at + m * out_stride, table, rows[start + m] * width, width)


@compiled_with(error_model="numpy")
def sum_edge_rows(
    states: Any, at: int, stride: int, edge_start: Any, start: int,
    out: Any, out_at: int, out_stride: int, n: int, width: int,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Add up the rows of each vertex's edges; the first of them begins at element `at`."""
    flat, to = states.reshape(states.size), out.reshape(out.size)
    first = edge_start[start]
    for m in range(n):
        begin = out_at + m * out_stride
        total = to[begin : begin + width]
        for j in range(len(total)):
            total[j] = 0.0
        for edge in range(edge_start[start + m] - first, edge_start[start + m + 1] - first):
            row = flat[at + edge * stride : at + edge * stride + width]
            for j in range(len(total)):
                total[j] += row[j]


@compiled_with(constants=False, error_model="numpy")
def spread_rows(
    source: Any, at: int, stride: int, edge_start: Any, start: int,
    out: Any, out_at: int, out_stride: int, n: int, width: int,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Copy the row of each vertex to all of its edges."""
    first = edge_start[start]
    for m in range(n):
        for edge in range(edge_start[start + m] - first, edge_start[start + m + 1] - first):
            copy(out, out_at + edge * out_stride, source, at + m * stride, width)


@compiled_with(error_model="numpy")
def sum_child_rows(
    states: Any, index: Any, edge_start: Any, start: int, out: Any
) -> None:  # pragma: no cover - compiled
    """Add up the children's states of each vertex, read where they are."""
    for m in range(len(out)):
        to = out[m]
        for j in range(len(to)):
            to[j] = 0.0
        for edge in range(edge_start[start + m], edge_start[start + m + 1]):
            child = states[index[edge]]
            for j in range(len(to)):
                to[j] += child[j]


@compiled_with(fastmath=FAST, error_model="numpy")
def sum_elements(x: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Sum of every row."""
    for m in range(len(x)):
        total = x[m, 0]
        for j in range(1, x.shape[1]):
            total += x[m, j]
        out[m, 0] = total


@compiled_with(error_model="numpy")
def expand(x: Any, out: Any) -> None:  # pragma: no cover - compiled
    """The only element of every row, repeated."""
    for m in range(len(out)):
        for j in range(out.shape[1]):
            out[m, j] = x[m, 0]


@compiled_with(fastmath=FAST, error_model="numpy")
def apply(x: Any, matrix: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Row times its own matrix, which lies in one row of `matrix`."""
    k, width = x.shape[1], out.shape[1]
    for m in range(len(x)):
        to, flat = out[m], matrix[m]
        for j in range(width):
            to[j] = 0.0
        for i in range(k):
            factor, row = x[m, i], flat[i * width : (i + 1) * width]
            for j in range(width):
                to[j] += factor * row[j]


@compiled_with(fastmath=FAST, error_model="numpy")
def apply_transposed(y: Any, matrix: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Row times its own matrix, transposed."""
    k, width = out.shape[1], y.shape[1]
    for m in range(len(y)):
        row, flat = y[m], matrix[m]
        for i in range(k):
            column = flat[i * width : (i + 1) * width]
            total = row[0] * column[0]
            for j in range(1, width):
                total += row[j] * column[j]
            out[m, i] = total


@compiled_with(error_model="numpy")
def outer(x: Any, y: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Outer product of two rows, as one row."""
    width = y.shape[1]
    for m in range(len(x)):
        to, row = out[m], y[m]
        for i in range(x.shape[1]):
            factor, part = x[m, i], to[i * width : (i + 1) * width]
            for j in range(width):
                part[j] = factor * row[j]


@compiled_with(constants=False, error_model="numpy")
def fill_viewed(
    states: Any, index: Any, runs: Any, bounds: Any, buffer: Any, n_slots: int, tally: Any,
    thread: int, n_threads: int,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Copy what batches read in place, so that the buffer holds the rows of all of them.

    bounds (n_batches + 1,): rows of the buffer at which batches begin. A thread copies its share.
    """
    for b in range(len(bounds) - 1):
        if runs[b] >= 0:
            at, n = share(bounds[b + 1] - bounds[b], ROWS, thread, n_threads)
            first = bounds[b] + at
            tally[0] += 1
            tally[1] += gather_rows(states, index, first * n_slots, buffer, first, n, n_slots)


@compiled_with(fastmath=FAST, error_model="numpy")
def add_up_rows(
    x: Any, at: int, stride: int, n: int, out: Any, written: Any
) -> None:  # pragma: no cover - compiled
    """Add n rows to out (k,), or write their sum where nothing was written yet."""
    flat, width = x.reshape(x.size), len(out)
    if written[0] == 0:
        for j in range(width):
            out[j] = 0.0
        written[0] = 1
    n_by_four = n - n % 4
    for m in range(0, n_by_four, 4):
        a = at + m * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        first, second = flat[a : a + width], flat[b : b + width]
        third, fourth = flat[c : c + width], flat[d : d + width]
        for j in range(width):
            out[j] += (first[j] + second[j]) + (third[j] + fourth[j])
    for m in range(n_by_four, n):
        row = flat[at + m * stride : at + m * stride + width]
        for j in range(width):
            out[j] += row[j]
