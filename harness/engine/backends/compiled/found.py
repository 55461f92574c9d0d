"""Where the arguments of all loops are: looked for only when they may have moved.

To find an array and its address takes Python a microsecond, and a mini-batch of one sentence has a
hundred arguments in five stages: most stay where they are, and where those of the layout are is
filled in by one compiled call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.arguments import Argument, Moving, OfLayout, Renewed
from harness.engine.backends.compiled.memory import Memory
from harness.engine.cpu_kernels.addresses import Table, address_of, put_parts, put_place
from harness.engine.rows.fields import Fields


class Found:
    """The place (address, rows) of every argument, those of a loop one behind the other.

    places (n, 2): the table; address: of it.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._has_threads = memory.parameters.n_threads > 1
        self._arguments: list[Argument] = []
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

    def add(self, arguments: Sequence[Argument]) -> int:
        """Take a loop's arguments; returns the place of the first."""
        first = len(self._arguments)
        for k, argument in enumerate(arguments, start=first):
            if isinstance(argument, OfLayout):
                self._of_layout.append((k, argument))
            elif isinstance(argument, Moving) and self._has_threads:
                self._moving.append((k, argument))
            elif isinstance(argument, Renewed) and argument not in self._renewed:
                self._renewed.append(argument)
        self._arguments += arguments
        self._take_table(np.zeros((len(self._arguments), 2), dtype=np.int64))
        self._fields, self._found_for = None, (-1, -1)
        return first

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
        put_parts(self.places, self._numbers, layout.numbers, layout.bounds)
        for k, moving in self._moving:
            array = self._kept[k] = moving.find(memory)
            put_place(self.places, k, array)
        for renewed in self._renewed:
            renewed.renew(memory)
        self._found_for = n_grown, n_arranged

    def keep_up(self) -> None:
        """Find what moves when memory grows, and else stays."""
        n_grown = self.memory.n_grown
        if self._found_for[0] != n_grown:
            for k, argument in enumerate(self._arguments):
                if not isinstance(argument, OfLayout):
                    put_place(self.places, k, argument.find(self.memory))
            self._found_for = n_grown, -1

    def parts(self, fields: Fields) -> NDArray[np.int64]:
        """Which place is which array of the layout (n, 2)."""
        numbers = [(k, one.number(fields)) for k, one in self._of_layout]
        return np.array(numbers, dtype=np.int64).reshape(-1, 2)

    @property
    def is_steady(self) -> bool:
        """Whether only what is of the layout changes from one mini-batch to the next."""
        return not self._moving and not self._renewed
