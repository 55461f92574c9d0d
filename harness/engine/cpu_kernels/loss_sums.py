"""Losses of one round after the other, summed up between the calls that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.cpu_kernels.addresses import (
    Table,
    address_of,
    doubles,
    floats,
    int32_pairs,
    thread_of,
    word,
)
from harness.engine.cpu_kernels.meeting import meet
from harness.machine.native import native


@native("void(int64, int64, int64, int64)", error_model="numpy")
def add_up(context: int, places: int, rows: int, n: int) -> None:  # pragma: no cover - compiled
    """Add rows (begin, end) of n columns to the sum; all threads wait for it.

    places: of the sum (float64) and of each column, where it begins and how far rows are apart.
    """
    thread, _ = thread_of(context)
    if thread == 0:
        bounds, total = int32_pairs(rows, n), doubles(word(places, 0), 1)
        for k in range(n):
            begin, end, stride = bounds[k, 0], bounds[k, 1], word(places, 2 * k + 3)
            column = floats(word(places, 2 * k + 2), end * stride + 1)
            for row in range(begin, end):
                total[0] += column[row * stride]
    meet(context)


class LossSums:
    """Sums up columns of losses.

    columns: of each function's losses, float32, with any stride. total (1,): the sum so far.
    """

    function = add_up

    def __init__(self, columns: Sequence[NDArray[np.float32]]) -> None:
        self.total: NDArray[np.float64] = np.zeros(1, dtype=np.float64)
        self.arrays: Sequence[NDArray[Any]] = (self.total, *columns)
        self._places: Table = np.array(
            [(address_of(array), array.strides[0] // array.itemsize) for array in self.arrays],
            dtype=np.int64,
        )
        self.places_address = address_of(self._places)
