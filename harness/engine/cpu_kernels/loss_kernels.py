"""Softmax losses on the CPU, one pass over the rows each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from harness.engine.cpu_kernels.addresses import carray, float32s
from harness.engine.cpu_kernels.fast_math import FAST, fast_exp
from harness.engine.rows.geometry import Index
from harness.machine.compiled import compiled_with

cgutils: Any = untyped_cgutils
Matrix = NDArray[np.float32]
NO_BIAS: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
N_LANES = 128


def _room(_typing: Any) -> Any:
    """Room for N_LANES of float32 until the function that asks for it returns; its address.

    Threads allocate no memory: what watches all that is allocated, as tracemalloc does, would wait
    for Python's lock, which the caller of the team holds.
    """

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        room = cgutils.alloca_once(builder, ir.ArrayType(ir.FloatType(), N_LANES))
        return builder.ptrtoint(room, ir.IntType(64))

    return types.intp(), generate


_on_stack: Any = intrinsic(_room)


@compiled_with(fastmath=FAST, error_model="numpy")
def largest(x: NDArray[np.float32], lanes: NDArray[np.float32]) -> Any:  # pragma: no cover
    """The largest element of a row; lanes (N_LANES,): scratch.

    A loop that carries one largest value is not vectorised; element by element over lanes it is
    (10 000 elements on one Zen 5 core: 1.4 against 5.5 us).
    """
    n_whole = len(x) - len(x) % N_LANES
    top = x[len(x) - 1]
    for j in range(n_whole, len(x)):
        top = max(top, x[j])
    if n_whole > 0:
        for k in range(N_LANES):
            lanes[k] = x[k]
        for start in range(N_LANES, n_whole, N_LANES):
            part = x[start : start + N_LANES]
            for k in range(N_LANES):
                lanes[k] = max(lanes[k], part[k])
        for k in range(N_LANES):
            top = max(top, lanes[k])
    return top


@compiled_with(fastmath=FAST, error_model="numpy")
def pick_neg_log_softmax(logits: Matrix, label: Index, out: Matrix) -> None:  # pragma: no cover
    lanes = carray(float32s(_on_stack()), (N_LANES,))
    for m in range(len(logits)):
        x = logits[m]
        top = largest(x, lanes)
        total = np.float32(0.0)
        for j in range(len(x)):
            total += fast_exp(x[j] - top)
        out[m, 0] = top + math.log(total) - x[label[m]]


@compiled_with(fastmath=FAST, error_model="numpy")
def softmax_loss(
    logits: Matrix,
    bias: NDArray[np.float32],
    label: Index,
    out: Matrix,
    log_sum: Matrix,
    leaves_gradient: bool,
) -> None:  # pragma: no cover - compiled
    """The loss of every row; its gradient takes the place of the logits where it is asked for.

    A row of 10 000 classes stays in the cache for all its passes.
    """
    lanes = carray(float32s(_on_stack()), (N_LANES,))
    for m in range(len(logits)):
        x = logits[m]
        if len(bias):
            for j in range(len(x)):
                x[j] += bias[j]
        top = largest(x, lanes)
        picked = x[label[m]]
        total = np.float32(0.0)
        if leaves_gradient:
            for j in range(len(x)):
                e = fast_exp(x[j] - top)
                x[j] = e
                total += e
            scale = np.float32(1.0) / total
            for j in range(len(x)):
                x[j] *= scale
            x[label[m]] -= np.float32(1.0)
        else:
            for j in range(len(x)):
                total += fast_exp(x[j] - top)
        log_sum[m, 0] = top + math.log(total)
        out[m, 0] = log_sum[m, 0] - picked


def logits_of(gradient: Matrix, label: Index, loss: Matrix, log_sum: Matrix) -> NDArray[np.float32]:
    """The logits in whose place softmax_loss left their gradient.

    Those that lie more than 87 below the largest are raised to that, where float32 ends.
    """
    with np.errstate(divide="ignore"):
        logits = np.log(np.maximum(gradient, np.finfo(np.float32).tiny)) + log_sum
    rows = np.arange(len(logits))
    logits[rows, label] = (log_sum - loss)[:, 0]
    return logits


@compiled_with(fastmath=FAST, error_model="numpy")
def softmax_minus_one_hot(
    logits: Matrix, label: Index, dy: Matrix, out: Matrix
) -> None:  # pragma: no cover - compiled
    lanes = carray(float32s(_on_stack()), (N_LANES,))
    for m in range(len(logits)):
        x, y = logits[m], out[m]
        top = largest(x, lanes)
        total = np.float32(0.0)
        for j in range(len(x)):
            y[j] = fast_exp(x[j] - top)
            total += y[j]
        scale = dy[m, 0] / total
        for j in range(len(x)):
            y[j] *= scale
        y[label[m]] -= dy[m, 0]
