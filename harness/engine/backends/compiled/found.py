"""Where the arguments of all loops are: looked for only when they may have moved.

To find an array and its address takes Python a microsecond, and a mini-batch of one sentence has a
hundred arguments in five stages: most stay where they are, and where those of the layout are is
filled in by one compiled call.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compiler.addresses import address_of
from harness.compiler.compiled import compiled
from harness.compiler.pointers import put_word, word
from harness.engine.backends.compiled.arguments import Argument, Moving, OfLayout, Renewed
from harness.engine.backends.compiled.memory import Memory
from harness.engine.cpu_kernels.team import Table
from harness.engine.rows.fields import Fields

_PLACE = struct.Struct("2q")


class Found:
    """The place (address, rows) of every argument.

    places (n, 2): the table; address: of it.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._has_threads = memory.parameters.n_threads > 1
        self._arguments: list[Argument] = []
        self._numbers_of: dict[Argument, int] = {}
        self._take_table(np.zeros((0, 2), dtype=np.int64))
        self._kept: dict[int, NDArray[Any]] = {}  # whose memory nobody else holds
        self._moving: list[tuple[int, Moving]] = []
        self._renewed: list[Renewed] = []
        self._of_layout: list[tuple[int, OfLayout]] = []
        self._numbers = np.zeros((0, 2), dtype=np.int64)  # which place, which array of the layout
        self._fields: Fields | None = None
        self._found_for = (-1, -1)

    def _take_table(self, places: Table) -> None:
        self.places, self.address = places, address_of(places)

    def place_of(self, argument: Argument) -> int:
        """Return the place of an argument, a new one where it has none."""
        k = self._numbers_of.setdefault(argument, len(self._arguments))
        if k == len(self._arguments):
            self._arguments.append(argument)
            if isinstance(argument, OfLayout):
                self._of_layout.append((k, argument))
            elif isinstance(argument, Moving) and self._has_threads:
                self._moving.append((k, argument))
            elif isinstance(argument, Renewed):
                self._renewed.append(argument)
            if k >= len(self.places):
                self._take_table(np.zeros((2 * k + 64, 2), dtype=np.int64))
            self._fields, self._found_for = None, (-1, -1)
        return k

    def look(self) -> None:
        """Find what may have moved."""
        memory = self.memory
        n_grown, n_arranged = memory.n_grown, memory.n_arranged
        if self._found_for == (n_grown, n_arranged):
            return
        self.keep_up()
        layout = memory.layout
        if layout.fields is not self._fields:
            self._fields = layout.fields
            self._numbers = self.parts(layout.fields)
            self._numbers_address = address_of(self._numbers)
        put_parts(
            self.address, self._numbers_address, len(self._numbers), address_of(layout.numbers),
            address_of(layout.bounds),
        )  # fmt: skip
        for k, moving in self._moving:
            array = self._kept[k] = moving.find(memory)
            self._put(k, array)
        for renewed in self._renewed:
            renewed.renew(memory)
        self._found_for = n_grown, n_arranged

    def keep_up(self) -> None:
        """Find what moves when memory grows, and else stays."""
        n_grown = self.memory.n_grown
        if self._found_for[0] != n_grown:
            for k, argument in enumerate(self._arguments):
                if not isinstance(argument, OfLayout):
                    self._put(k, argument.find(self.memory))
            self._found_for = n_grown, -1

    def _put(self, k: int, array: NDArray[Any]) -> None:
        _PLACE.pack_into(self.places.data, _PLACE.size * k, address_of(array), len(array))

    def parts(self, fields: Fields) -> NDArray[np.int64]:
        """Which place is which array of the layout (n, 2)."""
        numbers = [(k, one.number(fields)) for k, one in self._of_layout]
        return np.array(numbers, dtype=np.int64).reshape(-1, 2)

    @property
    def is_steady(self) -> bool:
        """Whether only what is of the layout changes from one mini-batch to the next."""
        return not self._moving and not self._renewed


@compiled
def put_parts(places: int, numbers: int, n: int, array: int, bounds: int) -> None:
    """Write where parts of an array of int64 are.

    numbers (n, 2): which place, and which part. bounds (n_parts, 2): where each part begins, and
    how long it is.
    """
    for k in range(n):
        place, part = word(numbers, 2 * k), word(numbers, 2 * k + 1)
        put_word(places, 2 * place, array + 8 * word(bounds, 2 * part))
        put_word(places, 2 * place + 1, word(bounds, 2 * part + 1))
