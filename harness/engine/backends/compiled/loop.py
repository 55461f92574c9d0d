"""A stage of batches as one function of compiled code (see source.py), and where its arrays are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.found import Found
from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels.addresses import address_of
from harness.engine.cpu_kernels.team import Call
from harness.engine.generated import load_generated
from harness.engine.lowering.plan import Plan
from harness.values.instances import IntArray


class CompiledLoop:
    """One stage of some vertex functions."""

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
        self._found, self._numbers = found, found.add(source.arguments)
        self._places = found.places[self._numbers]
        self._found_for = (0, 0)
        self.function: Callable[..., None] = load_generated(source.text(self.arrays), "loop")
        self.places_address = address_of(self._places)

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The arguments."""
        return [self._found.arrays[k] for k in self._numbers]

    def find(self) -> None:
        """Look where the arguments are in this mini-batch."""
        found_for = self._found.look()
        if found_for != self._found_for:  # a round needs them as often as a stage
            self._found.places.take(self._numbers, axis=0, out=self._places, mode="clip")
            self._found_for = found_for

    def call(self, batches: IntArray) -> Call:
        """The call that runs the stage of every (type, position) in order."""
        self.find()
        return Call(self, np.ascontiguousarray(batches))
