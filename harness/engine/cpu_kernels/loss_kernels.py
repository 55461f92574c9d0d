"""Softmax losses on the CPU, one pass over the rows each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import compiled
from harness.compiler.pointers import ROOM_BYTES, floats_at, room_on_stack, word
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.context import begin, row
from harness.engine.cpu_kernels.fast_math import FAST, fast_exp
from harness.engine.rows.geometry import Index

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
