"""What a batch of operators computes, with NumPy, into memory that is there already.

Operands and results have the shape (m, n, ...): m operators of a batch, n instances; parameters
(m, ...), or (1, ...) where one serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import ConfigError
from harness.vertex.operators import Node

Array = NDArray[np.float32]
Run = Callable[[], object]
HALF, ONE = np.float32(0.5), np.float32(1.0)


def kernel(node: Node, operands: Sequence[Array], out: Array) -> Run:
    """Prepare one batched operator; calling what is returned computes it.

    Raises ConfigError for an operator that blocks do not know.
    """
    if node.op in PREPARED:
        return PREPARED[node.op](node, operands, out)
    if node.op not in UFUNCS:
        raise ConfigError(
            f"operator {node.op} has no kernel for blocks; known: "
            + ", ".join(sorted([*PREPARED, *UFUNCS]))
        )
    ufunc = UFUNCS[node.op]
    return lambda: ufunc(*operands, out=out)


def _sigmoid(node: Node, operands: Sequence[Array], out: Array) -> Run:
    (x,) = operands

    def run() -> None:
        np.multiply(x, HALF, out=out)
        np.tanh(out, out=out)
        np.add(out, ONE, out=out)
        np.multiply(out, HALF, out=out)

    return run


def _matmul(node: Node, operands: Sequence[Array], out: Array) -> Run:
    """One GEMM for each matrix; matrix-valued operands are multiplied row by row."""
    x, weight = operands
    rows = x.reshape(len(weight), -1, x.shape[-1])
    result = out.reshape(len(weight), -1, out.shape[-1])
    if len(weight) == 1:
        rows, weight, result = rows[0], weight[0], result[0]
    return lambda: np.matmul(rows, weight, out=result)


def _apply(node: Node, operands: Sequence[Array], out: Array) -> Run:
    x, matrix = operands
    rows, result = x[..., None, :], out[..., None, :]
    return lambda: np.matmul(rows, matrix, out=result)


def _bias(node: Node, operands: Sequence[Array], out: Array) -> Run:
    x, bias = operands
    spread = bias.reshape(len(bias), *(1,) * (x.ndim - 2), bias.shape[-1])
    return lambda: np.add(x, spread, out=out)


def _concat(node: Node, operands: Sequence[Array], out: Array) -> Run:
    parts = list(operands)
    return lambda: np.concatenate(parts, axis=-1, out=out)


def _slice(node: Node, operands: Sequence[Array], out: Array) -> Run:
    columns = operands[0][..., node.index : node.index + node.width]
    return lambda: np.copyto(out, columns)


def _with_value(ufunc: np.ufunc) -> Callable[[Node, Sequence[Array], Array], Run]:
    def prepare(node: Node, operands: Sequence[Array], out: Array) -> Run:
        (x,), value = operands, np.float32(node.value)
        return lambda: ufunc(x, value, out=out)

    return prepare


UFUNCS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "square": np.square,
    "sqrt": np.sqrt,
}
PREPARED: dict[str, Callable[[Node, Sequence[Array], Array], Run]] = {
    "matmul": _matmul,
    "apply": _apply,
    "bias": _bias,
    "sigmoid": _sigmoid,
    "concat": _concat,
    "slice": _slice,
    "scale": _with_value(np.multiply),
    "shift": _with_value(np.add),
}
