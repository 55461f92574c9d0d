"""A stage of batches as one function of compiled code (see source.py), and where its arrays are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.found import Found
from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels.team import Call
from harness.engine.lowering.plan import Plan
from harness.values.instances import IntArray

_PLACE_BYTES = 16  # an address, and a number of rows


class CompiledLoop:
    """One stage of some vertex functions.

    text: of the module whose function `loop` is to become `function`.
    """

    function: Callable[..., None]

    def __init__(
        self,
        plans: Mapping[int, Plan],
        stage: str,
        found: Found,
        *,
        profile: bool = False,
        half: bool = False,
    ) -> None:
        source = write_loop(plans, stage, profile=profile, half=half)
        self._found, self._arguments = found, source.arguments
        self._first_place = _PLACE_BYTES * found.add(source.arguments)
        self.text = source.text(self.arrays)

    @property
    def places_address(self) -> int:
        """Where the table of its arguments is."""
        return self._found.address + self._first_place

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The arguments."""
        return [argument.find(self._found.memory) for argument in self._arguments]

    def find(self) -> None:
        """Look where the arguments are in this mini-batch."""
        self._found.look()

    def call(self, batches: IntArray) -> Call:
        """The call that runs the stage of every (type, position) in order."""
        self.find()
        return Call(self, np.ascontiguousarray(batches))
