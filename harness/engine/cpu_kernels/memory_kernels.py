"""Compiled loops that only move or add rows; NumPy views of the engine's CPU buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.cpu_kernels.addresses import Table, floats, word
from harness.engine.cpu_kernels.fast_math import FAST
from harness.engine.cpu_kernels.squares import SIDE, transpose_square
from harness.engine.rows.geometry import Index
from harness.machine.compiled import compiled_with

Matrix = NDArray[np.float32]
N_OF_STEP = 4


@compiled_with(error_model="numpy")
def scatter_add(
    target: Matrix, index: Index, first: int, source: Matrix, row: int, column: int, n: int, k: int
) -> None:  # pragma: no cover - compiled
    """Add row r of `source`, cut into k parts, to the k rows of `target` that `index` names."""
    width = target.shape[1]
    for m in range(n):
        values = source[row + m]
        for slot in range(k):
            to = target[index[first + m * k + slot]]
            start = column + slot * width
            part = values[start : start + width]
            for j in range(width):
                to[j] += part[j]


@compiled_with(error_model="numpy")
def scatter_add_slot(
    target: Matrix,
    index: Index,
    first: int,
    stride: int,
    source: Matrix,
    row: int,
    column: int,
    n: int,
) -> None:  # pragma: no cover - compiled
    """Add n rows of `source` to the rows of `target` named by every `stride`-th index."""
    width = target.shape[1]
    for m in range(n):
        values = source[row + m, column : column + width]
        to = target[index[first + m * stride]]
        for j in range(width):
            to[j] += values[j]


@compiled_with(error_model="numpy")
def transpose(matrix: Matrix, out: Matrix) -> None:  # pragma: no cover - compiled
    """Exchange rows and columns of C-contiguous matrices, square by square."""
    n_rows, n_columns = matrix.shape
    whole_rows, whole_columns = n_rows - n_rows % SIDE, n_columns - n_columns % SIDE
    source, to = matrix.ctypes.data, out.ctypes.data
    for j in range(0, whole_columns, SIDE):
        for i in range(0, whole_rows, SIDE):
            begin, end = source + 4 * (i * n_columns + j), to + 4 * (j * n_rows + i)
            transpose_square(begin, n_columns, end, n_rows)
    for i in range(n_rows):
        for j in range(whole_columns if i < whole_rows else 0, n_columns):
            out[j, i] = matrix[i, j]


@compiled_with(error_model="numpy")
def exceeds(wanted: Index, room: Index) -> bool:  # pragma: no cover - compiled
    """Whether any number is larger than its like; NumPy needs two passes and an array for it."""
    for i in range(len(wanted)):
        for j in range(wanted.shape[1]):
            if wanted[i, j] > room[i, j]:
                return True
    return False


@compiled_with(error_model="numpy")
def update_rows(
    table: Matrix, index: Index, gradient: Any, learning_rate: np.float32
) -> None:  # pragma: no cover - compiled
    """One step of SGD on the rows of a table that a mini-batch used; repeated rows add up."""
    for m in range(len(index)):
        to, step = table[index[m]], gradient[m]
        for j in range(len(to)):
            to[j] -= learning_rate * step[j]


@compiled_with(fastmath=FAST, error_model="numpy")
def descend(steps: Table, learning_rate: np.float32) -> None:  # pragma: no cover - compiled
    """One step of SGD on whole parameters, of those whose gradients were written.

    steps (n, N_OF_STEP): addresses of what says so, of a parameter and of its gradient, and its
    size.
    """
    for k in range(len(steps)):
        if word(steps[k, 0], 0) != 0:
            value, gradient = floats(steps[k, 1], steps[k, 3]), floats(steps[k, 2], steps[k, 3])
            for j in range(len(value)):
                value[j] -= learning_rate * gradient[j]
