"""Losses of one round after the other, summed up between the calls that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compiler.addresses import address_of
from harness.compiler.compiled import compiled
from harness.compiler.pointers import doubles_at, floats_at, half_word, word
from harness.engine.cpu_kernels.context import N_THREADS, THREAD
from harness.engine.cpu_kernels.meeting import meet


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
