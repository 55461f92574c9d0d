"""Softmax losses on the CPU, one pass over the rows each."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from harness.engine.cpu_kernels.fast_math import FAST, fast_exp
from harness.engine.rows.layout import Index
from harness.machine.compiled import compiled_with

Matrix = NDArray[np.float32]


@compiled_with(fastmath=FAST, error_model="numpy")
def pick_neg_log_softmax(logits: Matrix, label: Index, out: Matrix) -> None:  # pragma: no cover
    for m in range(len(logits)):
        x = logits[m]
        top = x.max()
        total = np.float32(0.0)
        for j in range(len(x)):
            total += fast_exp(x[j] - top)
        out[m, 0] = top + math.log(total) - x[label[m]]


@compiled_with(fastmath=FAST, error_model="numpy")
def softmax_minus_one_hot(
    logits: Matrix, label: Index, dy: Matrix, out: Matrix
) -> None:  # pragma: no cover - compiled
    for m in range(len(logits)):
        x, y = logits[m], out[m]
        top = x.max()
        total = np.float32(0.0)
        for j in range(len(x)):
            y[j] = fast_exp(x[j] - top)
            total += y[j]
        scale = dy[m, 0] / total
        for j in range(len(x)):
            y[j] *= scale
        y[label[m]] -= dy[m, 0]
