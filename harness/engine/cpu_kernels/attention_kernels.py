"""Attention, softmax and layer normalisation on the CPU, for matrices of which a vertex has one.

The products of a head are of values on both sides, columns of wider rows, and small: 128 x 64 by
64 x 128 in a BERT.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.engine.cpu_kernels.blas import multiply_strided
from harness.engine.cpu_kernels.fast_math import FAST, fast_exp
from harness.engine.cpu_kernels.loss_kernels import N_LANES, largest
from harness.machine.compiled import compiled_with
from harness.vertex.operators import LAYER_NORM_EPSILON

EPSILON = np.float32(LAYER_NORM_EPSILON)


@compiled_with(constants=False, error_model="numpy")
def score_heads(
    q: Any, q_at: int, q_stride: int, k: Any, k_at: int, k_stride: int,
    out: Any, out_at: int, out_stride: int, n: int, n_heads: int, n_rows: int, n_weights: int,
    width: int, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """q k^T of every head of n vertices: q (n_rows, width), k (n_weights, width)."""
    columns = width // n_heads
    for m in range(n):
        for head in range(n_heads):
            multiply_strided(
                q, q_at + m * q_stride + head * columns, width, n_rows, columns,
                k, k_at + m * k_stride + head * columns, width, n_weights, True,
                out, out_at + m * out_stride + head * n_rows * n_weights, n_weights,
                sizes, letters, factors,
            )  # fmt: skip


@compiled_with(constants=False, error_model="numpy")
def mix_heads(
    p: Any, p_at: int, p_stride: int, v: Any, v_at: int, v_stride: int,
    out: Any, out_at: int, out_stride: int, n: int, n_heads: int, n_rows: int, n_weights: int,
    width: int, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """p v of every head of n vertices: p (n_heads * n_rows, n_weights), v (n_weights, width)."""
    columns = width // n_heads
    for m in range(n):
        for head in range(n_heads):
            multiply_strided(
                p, p_at + m * p_stride + head * n_rows * n_weights, n_weights, n_rows, n_weights,
                v, v_at + m * v_stride + head * columns, width, columns, False,
                out, out_at + m * out_stride + head * columns, width,
                sizes, letters, factors,
            )  # fmt: skip


@compiled_with(fastmath=FAST, error_model="numpy")
def softmax(x: Any, width: int, out: Any) -> None:  # pragma: no cover - compiled
    """Softmax of every `width` columns."""
    lanes = np.empty(N_LANES, np.float32)
    for m in range(len(x)):
        for start in range(0, x.shape[1], width):
            row, to = x[m, start : start + width], out[m, start : start + width]
            top = largest(row, lanes)
            total = np.float32(0.0)
            for j in range(len(row)):
                e = fast_exp(row[j] - top)
                to[j] = e
                total += e
            scale = np.float32(1.0) / total
            for j in range(len(to)):
                to[j] *= scale


@compiled_with(fastmath=FAST, error_model="numpy")
def layer_norm(x: Any, gain: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Every row of len(gain) columns, normalised, times gain."""
    width = len(gain)
    for m in range(len(x)):
        for start in range(0, x.shape[1], width):
            row, to = x[m, start : start + width], out[m, start : start + width]
            total = np.float32(0.0)
            for j in range(len(row)):
                total += row[j]
            mean = total / np.float32(width)
            squares = np.float32(0.0)
            for j in range(len(row)):
                squares += (row[j] - mean) * (row[j] - mean)
            scale = np.float32(1.0 / math.sqrt(squares / np.float32(width) + EPSILON))
            for j in range(len(to)):
                to[j] = gain[j] * (row[j] - mean) * scale
