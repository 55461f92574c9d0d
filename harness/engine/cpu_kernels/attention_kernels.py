"""Attention, softmax and layer normalisation on the CPU, for matrices of which a vertex has one.

The products of a head are of values on both sides, columns of wider rows, and small: 128 x 64 by
64 x 128 in a BERT.
"""

from __future__ import annotations

import math

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.pointers import floats_at, word
from harness.engine.cpu_kernels.blas import multiply_values
from harness.engine.cpu_kernels.context import begin, pitch, row
from harness.engine.cpu_kernels.fast_math import FAST, fast_exp
from harness.engine.cpu_kernels.loss_kernels import largest
from harness.vertex.operators import LAYER_NORM_EPSILON

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
