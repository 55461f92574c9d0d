"""Arrays aligned to cache lines, and kernels that update and transpose parameters.

NumPy aligns arrays to 16 bytes, so that in three of four arrays every vector of 64 bytes is on two
cache lines: each load and store takes twice as long.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import FLOAT_BYTES, call, copy_bytes, floats_at, read_word
from dynbatch.harness.engine.cpu_kernels.elementwise import FAST
from dynbatch.harness.engine.cpu_kernels.own_matmuls import BLOCK, count_padded
from dynbatch.harness.engine.cpu_kernels.vectors import SIDE
from dynbatch.harness.values.arrays import Longs, LongTable

LINE_BYTES = 64


def allocate_aligned(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an uninitialized C-contiguous array that starts at a cache line."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(n_bytes + LINE_BYTES, dtype=np.uint8)
    begin = -raw.ctypes.data % LINE_BYTES
    return raw[begin : begin + n_bytes].view(dtype).reshape(shape)


def copy_aligned(values: NDArray[Any]) -> NDArray[Any]:
    """Return a float32 copy that starts at a cache line."""
    result = allocate_aligned(values.shape)
    result[...] = values
    return result


Matrix = Annotated[NDArray[np.float32], 2]
N_OF_STEP = 4


@compiled
def transpose(square: int, matrix: int, n_rows: int, n_columns: int, out: int) -> None:
    """Transpose a matrix, square by square.

    Args:
        square: The address of the kernel that transposes one square.
    """
    whole_rows, whole_columns = n_rows - n_rows % SIDE, n_columns - n_columns % SIDE
    for j in range(0, whole_columns, SIDE):
        for i in range(0, whole_rows, SIDE):
            source, to = matrix + 4 * (i * n_columns + j), out + 4 * (j * n_rows + i)
            call(square, (source, 4 * n_columns, to, 4 * n_rows))
    values, to_values = floats_at(matrix), floats_at(out)
    for i in range(n_rows):
        for j in range(whole_columns if i < whole_rows else 0, n_columns):
            to_values[j * n_rows + i] = values[i * n_columns + j]


@compiled
def pack_columns(w: int, k: int, m: int, out: int) -> None:
    """Copy w (k, m) so that the rows of every BLOCK columns are consecutive.

    Rows of w are several KiB apart, and a kernel reads one or two cache lines of each.

    Args:
        out: The address of (k, count_padded(m)) floats. Padding is never read.
    """
    for column in range(0, m, BLOCK):
        width = min(BLOCK, m - column)
        for row in range(k):
            copy_bytes(
                out + FLOAT_BYTES * (column * k + row * count_padded(width)),
                w + FLOAT_BYTES * (row * m + column),
                FLOAT_BYTES * width,
            )


@compiled
def update_rows(
    table: Matrix, index: Longs, gradient: int, pitch: int, learning_rate: np.float32
) -> None:
    """Take one step of SGD on the rows of a table that a mini-batch used; repeated rows add up.

    Args:
        gradient: The address of the first row of gradients.
        pitch: Bytes from one of these rows to the next.
    """
    for m in range(len(index)):
        to, step = table[index[m]], floats_at(gradient + m * pitch)
        for j in range(len(to)):
            to[j] -= learning_rate * step[j]


@compiled(fast=FAST)
def update_parameters(steps: LongTable, learning_rate: np.float32) -> None:
    """Take one step of SGD on whole parameters whose gradients were written.

    Args:
        steps: (n, N_OF_STEP): addresses of the flag that the gradient was written, of the parameter
            and of its gradient; and the parameter's size.
    """
    for k in range(len(steps)):
        if read_word(steps[k, 0], 0) != 0:
            value, gradient = floats_at(steps[k, 1]), floats_at(steps[k, 2])
            for j in range(steps[k, 3]):
                value[j] -= learning_rate * gradient[j]
