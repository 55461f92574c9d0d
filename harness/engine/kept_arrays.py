"""Arrays that compiled code finds by one address, and so at the cost of one argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import address_of
from harness.engine.cpu_kernels.team import Table


class KeptArrays:
    """n arrays by number, kept as long as they are in the table.

    table (n, 2): where each begins, and its number of elements. address: of the table.
    """

    def __init__(self, n: int) -> None:
        self.table: Table = np.zeros((n, 2), dtype=np.int64)
        self.address = address_of(self.table)
        self._arrays: dict[int, NDArray[Any]] = {}

    def __getitem__(self, number: int) -> NDArray[Any]:
        return self._arrays[number]

    def put(self, number: int, array: NDArray[Any]) -> None:
        """Take an array in place of the one before; raises TypeError unless it is in one piece."""
        if not array.flags.c_contiguous:
            raise TypeError(f"array {number} of {array.shape} is not C-contiguous")
        self._arrays[number] = array
        self.table[number] = address_of(array), array.size

    def put_all(self, arrays: Mapping[int, NDArray[Any]]) -> None:
        """Take many."""
        for number, array in arrays.items():
            self.put(number, array)

    def make_room(self, number: int, n: int) -> None:
        """Let an array of one dimension have n elements at least, what it holds among them."""
        array = self._arrays[number]
        if n > len(array):
            larger = np.zeros(2 * n, dtype=array.dtype)
            larger[: len(array)] = array
            self.put(number, larger)
