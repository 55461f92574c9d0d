"""Losses, softmax, attention and layer normalization on the CPU, one pass over the rows each.

The products of an attention head are of values on both sides, columns of wider rows, and small:
128 x 64 by 64 x 128 in a BERT. Losses of one round after the other are summed up between the calls
that compute them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import address_of, compiled
from harness.compiler.pointers import (
    ROOM_BYTES,
    doubles_at,
    floats_at,
    half_word,
    room_on_stack,
    word,
)
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.blas import multiply_values
from harness.engine.cpu_kernels.context import N_THREADS, THREAD, begin, pitch, row
from harness.engine.cpu_kernels.elementwise import FAST, fast_exp
from harness.engine.cpu_kernels.team import meet
from harness.engine.rows.fields import Index
from harness.vertex.operators import LAYER_NORM_EPSILON

Matrix = NDArray[np.float32]
N_LANES = ROOM_BYTES // 4


@helper(fast=FAST)
def largest(x: Any, n: int) -> Any:
    """Return the largest of n elements.

    A loop that carries one largest value is not vectorised; element by element over lanes it is
    (10 000 elements on one Zen 5 core: 1.4 against 5.5 us).
    """
    lanes = floats_at(room_on_stack())
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


@compiled(fast=FAST)
def pick_neg_log_softmax(context: int, operands: int, constants: int, n: int) -> None:
    """Compute the loss of each row: logits, label, out; classes."""
    n_classes = word(constants, 0)
    for m in range(n):
        x, out = row(operands, 0, m), row(operands, 2, m)
        top = largest(x, n_classes)
        total = np.float32(0.0)
        for j in range(n_classes):
            total += fast_exp(x[j] - top)
        out[0] = top + math.log(total) - x[word(begin(operands, 1), m)]


@compiled(fast=FAST)
def softmax_loss(context: int, operands: int, constants: int, n: int) -> None:
    """Compute the loss of every row; its gradient takes the place of the logits where asked for.

    Operands: logits, bias, label, loss, log_sum. Constants: classes, whether there is a bias,
    whether the gradient is left. A row of 10 000 classes stays in the cache for all its passes.
    """
    n_classes, leaves_gradient = word(constants, 0), word(constants, 2)
    for m in range(n):
        x, loss, log_sum = row(operands, 0, m), row(operands, 3, m), row(operands, 4, m)
        if word(constants, 1) != 0:
            bias = row(operands, 1, 0)
            for j in range(n_classes):
                x[j] += bias[j]
        top = largest(x, n_classes)
        label = word(begin(operands, 2), m)
        picked = x[label]
        total = np.float32(0.0)
        if leaves_gradient != 0:
            for j in range(n_classes):
                e = fast_exp(x[j] - top)
                x[j] = e
                total += e
            scale = np.float32(1.0) / total
            for j in range(n_classes):
                x[j] *= scale
            x[label] -= np.float32(1.0)
        else:
            for j in range(n_classes):
                total += fast_exp(x[j] - top)
        log_sum[0] = top + math.log(total)
        loss[0] = log_sum[0] - picked


@compiled(fast=FAST)
def softmax_minus_one_hot(context: int, operands: int, constants: int, n: int) -> None:
    """Compute the gradient of each row's logits: logits, label, dy, out; classes."""
    n_classes = word(constants, 0)
    for m in range(n):
        x, dy, y = row(operands, 0, m), row(operands, 2, m), row(operands, 3, m)
        top = largest(x, n_classes)
        total = np.float32(0.0)
        for j in range(n_classes):
            y[j] = fast_exp(x[j] - top)
            total += y[j]
        scale = dy[0] / total
        for j in range(n_classes):
            y[j] *= scale
        y[word(begin(operands, 1), m)] -= dy[0]


def logits_of(gradient: Matrix, label: Index, loss: Matrix, log_sum: Matrix) -> NDArray[np.float32]:
    """The logits in whose place softmax_loss left their gradient.

    Those that lie more than 87 below the largest are raised to that, where float32 ends.
    """
    with np.errstate(divide="ignore"):
        logits = np.log(np.maximum(gradient, np.finfo(np.float32).tiny)) + log_sum
    rows = np.arange(len(logits))
    logits[rows, label] = (log_sum - loss)[:, 0]
    return logits


EPSILON = np.float32(LAYER_NORM_EPSILON)


@compiled
def score_heads(context: int, operands: int, constants: int, n: int) -> None:
    """q k^T of every head: q, k, out; heads, rows of q, rows of k, width of both."""
    n_heads, n_rows = word(constants, 0), word(constants, 1)
    n_weights, width = word(constants, 2), word(constants, 3)
    columns = width // n_heads
    for m in range(n):
        for head in range(n_heads):
            multiply_values(
                context, begin(operands, 0) + m * pitch(operands, 0) + 4 * head * columns,
                4 * width, n_rows, columns,
                begin(operands, 1) + m * pitch(operands, 1) + 4 * head * columns, 4 * width,
                n_weights, 1,
                begin(operands, 2) + m * pitch(operands, 2) + 4 * head * n_rows * n_weights,
                4 * n_weights,
            )  # fmt: skip


@compiled
def mix_heads(context: int, operands: int, constants: int, n: int) -> None:
    """p v of every head: p (heads * rows, weights), v, out; heads, rows, weights, width of v."""
    n_heads, n_rows = word(constants, 0), word(constants, 1)
    n_weights, width = word(constants, 2), word(constants, 3)
    columns = width // n_heads
    for m in range(n):
        for head in range(n_heads):
            multiply_values(
                context,
                begin(operands, 0) + m * pitch(operands, 0) + 4 * head * n_rows * n_weights,
                4 * n_weights, n_rows, n_weights,
                begin(operands, 1) + m * pitch(operands, 1) + 4 * head * columns, 4 * width,
                columns, 0, begin(operands, 2) + m * pitch(operands, 2) + 4 * head * columns,
                4 * width,
            )  # fmt: skip


@compiled(fast=FAST)
def softmax(context: int, operands: int, constants: int, n: int) -> None:
    """Softmax of every `width` columns: x, out; width, and how many of them a row has."""
    width, n_parts = word(constants, 0), word(constants, 1)
    for m in range(n):
        for part in range(n_parts):
            x = floats_at(begin(operands, 0) + m * pitch(operands, 0) + 4 * part * width)
            to = floats_at(begin(operands, 1) + m * pitch(operands, 1) + 4 * part * width)
            top = largest(x, width)
            total = np.float32(0.0)
            for j in range(width):
                e = fast_exp(x[j] - top)
                to[j] = e
                total += e
            scale = np.float32(1.0) / total
            for j in range(width):
                to[j] *= scale


@compiled(fast=FAST)
def layer_norm(context: int, operands: int, constants: int, n: int) -> None:
    """Every `width` columns normalised, times gain: x, gain, out; width, and how many of a row."""
    width, n_parts = word(constants, 0), word(constants, 1)
    gain = row(operands, 1, 0)
    for m in range(n):
        for part in range(n_parts):
            x = floats_at(begin(operands, 0) + m * pitch(operands, 0) + 4 * part * width)
            to = floats_at(begin(operands, 2) + m * pitch(operands, 2) + 4 * part * width)
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
    """Add rows (begin, end) of n columns to the sum; all threads wait for it.

    places: of the sum (float64) and of each column, where it begins and how far rows are apart.
    """
    if word(context, THREAD) == 0:
        total = doubles_at(word(places, 0))
        for k in range(n):
            stride, column = word(places, 2 * k + 3), floats_at(word(places, 2 * k + 2))
            for row in range(half_word(rows, 2 * k), half_word(rows, 2 * k + 1)):
                total[0] += column[row * stride]
    if word(context, N_THREADS) > 1:
        meet(context)


class LossSums:
    """Sums up columns of losses.

    columns: of each function's losses, float32, with any stride. total (1,): the sum so far.
    """

    def __init__(self, columns: Sequence[NDArray[np.float32]]) -> None:
        self.total: NDArray[np.float64] = np.zeros(1, dtype=np.float64)
        self.arrays: Sequence[NDArray[Any]] = (self.total, *columns)
        self._places: NDArray[np.int64] = np.array(
            [(address_of(array), array.strides[0] // array.itemsize) for array in self.arrays],
            dtype=np.int64,
        )
        self.function, self.argument = add_up.address, address_of(self._places)
