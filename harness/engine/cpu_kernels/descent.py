"""Plain SGD on all parameters of a model in one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.cpu_kernels.addresses import Table, address_of, carray, float32s, word
from harness.engine.cpu_kernels.fast_math import FAST
from harness.machine.compiled import compiled_with

_WORDS = 4
Step = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]


def table_of(steps: Iterable[Step]) -> Table:
    """Where each parameter, its gradient and the flag are that says whether it has one.

    Of contiguous arrays, which the caller keeps: the table holds addresses.
    """
    return np.array(
        [
            (address_of(value), address_of(gradient), value.size, address_of(flag))
            for value, gradient, flag in steps
        ],
        dtype=np.int64,
    ).reshape(-1, _WORDS)


@compiled_with(fastmath=FAST, error_model="numpy")
def descend(table: Any, learning_rate: np.float32) -> None:  # pragma: no cover - compiled
    """One step on every parameter of a table that has a gradient."""
    for k in range(len(table)):
        if word(table[k, 3], 0) == 0:
            continue
        n = table[k, 2]
        values, slopes = carray(float32s(table[k, 0]), (n,)), carray(float32s(table[k, 1]), (n,))
        for j in range(n):
            values[j] -= learning_rate * slopes[j]
