"""Where the arguments of all loops are: looked for only when they may have moved.

To find an array and its address takes Python a microsecond, and a mini-batch of one sentence has a
hundred arguments in five stages: most of them are the same, and few move with every mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.arguments import Argument
from harness.engine.backends.compiled.memory import Memory
from harness.engine.cpu_kernels.addresses import Table, address_of, put_place


class Found:
    """Arguments, each once, with the array and the place (address, rows) of each."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.arrays: list[NDArray[Any]] = []
        self.places: Table = np.zeros((0, 2), dtype=np.int64)
        self._arguments: list[Argument] = []
        self._numbers: dict[Argument, int] = {}
        self._moving: list[int] = []  # numbers of those that every mini-batch has anew
        self._found_for = (0, 0)

    def add(self, arguments: Sequence[Argument]) -> NDArray[np.intp]:
        """Take a loop's arguments; returns the number of each."""
        for argument in arguments:
            if argument not in self._numbers:
                k = self._numbers[argument] = len(self._arguments)
                self._arguments.append(argument)
                self.arrays.append(argument.find(self.memory))
                if argument.moves:
                    self._moving.append(k)
        self.places = np.array(
            [(address_of(array), len(array)) for array in self.arrays], dtype=np.int64
        ).reshape(-1, 2)
        return np.array([self._numbers[argument] for argument in arguments], dtype=np.intp)

    def look(self) -> tuple[int, int]:
        """Find what may have moved; returns what it was found for, to compare."""
        now = (self.memory.n_grown, self.memory.n_arranged)
        if now != self._found_for:
            stayed = now[0] == self._found_for[0]
            numbers = self._moving if stayed else range(len(self._arguments))
            for k in numbers:
                array = self.arrays[k] = self._arguments[k].find(self.memory)
                put_place(self.places, k, array)
            self._found_for = now
        return now
