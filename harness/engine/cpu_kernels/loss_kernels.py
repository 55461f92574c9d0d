"""Losses, softmax, attention and layer normalization on the CPU, one pass over the rows each.

The matmuls of an attention head multiply two values, which are columns of wider rows, and are
small: 128 x 64 by 64 x 128 in a BERT. The losses of successive graph segments are added up between
the calls that compute them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled, get_address
from dynbatch.harness.compiler.pointers import (
    ROOM_BYTES,
    allocate_on_stack,
    doubles_at,
    floats_at,
    read_half_word,
    read_word,
)
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.cpu_kernels.blas import multiply_values
from dynbatch.harness.engine.cpu_kernels.context import THREAD, begin, locate_row, read_pitch
from dynbatch.harness.engine.cpu_kernels.elementwise import FAST, compute_exp
from dynbatch.harness.engine.cpu_kernels.team import wait_at_barrier
from dynbatch.harness.engine.rows.fields import Index
from dynbatch.harness.vertex.operators import LAYER_NORM_EPSILON

Matrix = NDArray[np.float32]
N_LANES = ROOM_BYTES // 4


@helper(fast=FAST)
def find_maximum(x: Any, n: int) -> Any:
    """Return the largest of n elements.

    A loop with one running maximum is not vectorized, but one with a maximum per lane is (10 000
    elements on one Zen 5 core: 1.4 instead of 5.5 us).
    """
    lanes = floats_at(allocate_on_stack())
    n_whole = n - n % N_LANES
    top = x[n - 1]
    for j in range(n_whole, n):
        top = max(top, x[j])
    if n_whole > 0:
        for k in range(N_LANES):
            lanes[k] = x[k]
        for start in range(N_LANES, n_whole, N_LANES):
            for k in range(N_LANES):
                lanes[k] = max(lanes[k], x[start + k])
        for k in range(N_LANES):
            top = max(top, lanes[k])
    return top


@helper
def compute_loss(top: Any, total: Any, picked: Any) -> Any:
    """Return top + log(total) - picked, accurately for large logits.

    Fast-math flags would let LLVM add top to the logarithm first, which rounds the loss to the
    spacing of the logits.
    """
    return (top - picked) + math.log(total)


@compiled(fast=FAST)
def pick_neg_log_softmax(context: int, operands: int, constants: int, n: int) -> None:
    """Compute the loss of each row.

    Operands: logits, label, out. Constants: number of classes.
    """
    n_classes = read_word(constants, 0)
    for m in range(n):
        x, out = locate_row(operands, 0, m), locate_row(operands, 2, m)
        top = find_maximum(x, n_classes)
        total = np.float32(0.0)
        for j in range(n_classes):
            total += compute_exp(x[j] - top)
        out[0] = compute_loss(top, total, x[read_word(begin(operands, 1), m)])


@compiled(fast=FAST)
def compute_softmax_loss(context: int, operands: int, constants: int, n: int) -> None:
    """Compute the loss of every row, and optionally replace the logits by their gradient.

    Operands: logits, bias, label, loss, log_sum. Constants: number of classes, whether there is a
    bias, whether to write the gradient. A row of 10 000 classes stays in the cache for all passes.
    """
    n_classes, leaves_gradient = read_word(constants, 0), read_word(constants, 2)
    for m in range(n):
        x, loss, log_sum = (
            locate_row(operands, 0, m),
            locate_row(operands, 3, m),
            locate_row(operands, 4, m),
        )
        if read_word(constants, 1) != 0:
            bias = locate_row(operands, 1, 0)
            for j in range(n_classes):
                x[j] += bias[j]
        top = find_maximum(x, n_classes)
        label = read_word(begin(operands, 2), m)
        picked = x[label]
        total = np.float32(0.0)
        if leaves_gradient != 0:
            for j in range(n_classes):
                e = compute_exp(x[j] - top)
                x[j] = e
                total += e
            scale = np.float32(1.0) / total
            for j in range(n_classes):
                x[j] *= scale
            x[label] -= np.float32(1.0)
        else:
            for j in range(n_classes):
                total += compute_exp(x[j] - top)
        log_sum[0] = top + math.log(total)
        loss[0] = compute_loss(top, total, picked)


@compiled(fast=FAST)
def compute_softmax_gradient(context: int, operands: int, constants: int, n: int) -> None:
    """Compute the gradient of each row's logits.

    Operands: logits, label, dy, out. Constants: number of classes.
    """
    n_classes = read_word(constants, 0)
    for m in range(n):
        x, dy, y = (
            locate_row(operands, 0, m),
            locate_row(operands, 2, m),
            locate_row(operands, 3, m),
        )
        top = find_maximum(x, n_classes)
        total = np.float32(0.0)
        for j in range(n_classes):
            y[j] = compute_exp(x[j] - top)
            total += y[j]
        scale = dy[0] / total
        for j in range(n_classes):
            y[j] *= scale
        y[read_word(begin(operands, 1), m)] -= dy[0]


def restore_logits(
    gradient: Matrix, label: Index, loss: Matrix, log_sum: Matrix
) -> NDArray[np.float32]:
    """Recompute the logits that compute_softmax_loss replaced by their gradient.

    Logits more than 87 below log_sum are raised to that limit, because their softmax underflows in
    float32.
    """
    with np.errstate(divide="ignore"):
        logits = np.log(np.maximum(gradient, np.finfo(np.float32).tiny)) + log_sum
    rows = np.arange(len(logits))
    logits[rows, label] = (log_sum - loss)[:, 0]
    return logits


EPSILON = np.float32(LAYER_NORM_EPSILON)


@compiled
def score_heads(context: int, operands: int, constants: int, n: int) -> None:
    """Compute q k^T for every head.

    Operands: q, k, out. Constants: heads, rows of q, rows of k, width of both.
    """
    n_heads, n_rows = read_word(constants, 0), read_word(constants, 1)
    n_weights, width = read_word(constants, 2), read_word(constants, 3)
    columns = width // n_heads
    for m in range(n):
        for head in range(n_heads):
            multiply_values(
                context, begin(operands, 0) + m * read_pitch(operands, 0) + 4 * head * columns,
                4 * width, n_rows, columns,
                begin(operands, 1) + m * read_pitch(operands, 1) + 4 * head * columns, 4 * width,
                n_weights, 1,
                begin(operands, 2) + m * read_pitch(operands, 2) + 4 * head * n_rows * n_weights,
                4 * n_weights,
            )  # fmt: skip


@compiled
def mix_heads(context: int, operands: int, constants: int, n: int) -> None:
    """Compute p v for every head.

    Operands: p (heads * rows, weights), v, out. Constants: heads, rows, weights, width of v.
    """
    n_heads, n_rows = read_word(constants, 0), read_word(constants, 1)
    n_weights, width = read_word(constants, 2), read_word(constants, 3)
    columns = width // n_heads
    for m in range(n):
        for head in range(n_heads):
            multiply_values(
                context,
                begin(operands, 0) + m * read_pitch(operands, 0) + 4 * head * n_rows * n_weights,
                4 * n_weights, n_rows, n_weights,
                begin(operands, 1) + m * read_pitch(operands, 1) + 4 * head * columns, 4 * width,
                columns, 0, begin(operands, 2) + m * read_pitch(operands, 2) + 4 * head * columns,
                4 * width,
            )  # fmt: skip


@compiled(fast=FAST)
def compute_softmax(context: int, operands: int, constants: int, n: int) -> None:
    """Compute the softmax of every `width` columns.

    Operands: x, out. Constants: width, number of such groups of columns per row.
    """
    width, n_parts = read_word(constants, 0), read_word(constants, 1)
    for m in range(n):
        for part in range(n_parts):
            x = floats_at(begin(operands, 0) + m * read_pitch(operands, 0) + 4 * part * width)
            to = floats_at(begin(operands, 1) + m * read_pitch(operands, 1) + 4 * part * width)
            top = find_maximum(x, width)
            total = np.float32(0.0)
            for j in range(width):
                e = compute_exp(x[j] - top)
                to[j] = e
                total += e
            scale = np.float32(1.0) / total
            for j in range(width):
                to[j] *= scale


@compiled(fast=FAST)
def compute_layer_norm(context: int, operands: int, constants: int, n: int) -> None:
    """Normalize every `width` columns and multiply them by a gain.

    Operands: x, gain, out. Constants: width, number of such groups of columns per row.
    """
    width, n_parts = read_word(constants, 0), read_word(constants, 1)
    gain = locate_row(operands, 1, 0)
    for m in range(n):
        for part in range(n_parts):
            x = floats_at(begin(operands, 0) + m * read_pitch(operands, 0) + 4 * part * width)
            to = floats_at(begin(operands, 2) + m * read_pitch(operands, 2) + 4 * part * width)
            total = np.float32(0.0)
            for j in range(width):
                total += x[j]
            mean = total / np.float32(width)
            squares = np.float32(0.0)
            for j in range(width):
                squares += (x[j] - mean) * (x[j] - mean)
            scale = np.float32(1.0 / math.sqrt(squares / np.float32(width) + EPSILON))
            for j in range(width):
                to[j] = gain[j] * (x[j] - mean) * scale


@compiled
def add_up(context: int, places: int, rows: int, n: int) -> None:
    """Add rows of n columns to the sum; all threads wait for it.

    Args:
        places: Addresses of the sum (float64) and of each column, each with the stride of its rows.
        rows: The address of the first row and the end of each column, int32.
    """
    if read_word(context, THREAD) == 0:
        total = doubles_at(read_word(places, 0))
        for k in range(n):
            stride, column = read_word(places, 2 * k + 3), floats_at(read_word(places, 2 * k + 2))
            for row in range(read_half_word(rows, 2 * k), read_half_word(rows, 2 * k + 1)):
                total[0] += column[row * stride]
    wait_at_barrier(context)


class LossSums:
    """Sum of loss columns.

    Attributes:
        total: (1,), the sum so far.
        arrays: `total`, then the losses of each function as float32, with any stride.
    """

    def __init__(self, columns: Sequence[NDArray[np.float32]]) -> None:
        self.total: NDArray[np.float64] = np.zeros(1, dtype=np.float64)
        self.arrays: Sequence[NDArray[Any]] = (self.total, *columns)
        self._places: NDArray[np.int64] = np.array(
            [(get_address(array), array.strides[0] // array.itemsize) for array in self.arrays],
            dtype=np.int64,
        )
        self.function, self.argument = add_up.address, get_address(self._places)
