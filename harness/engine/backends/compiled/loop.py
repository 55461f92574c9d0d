"""A stage of batches as one function of compiled code (see source.py), and where its arrays are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.memory import Memory
from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels.addresses import fill_all
from harness.engine.cpu_kernels.team import Call
from harness.engine.generated import load_generated
from harness.engine.lowering.plan import Plan
from harness.values.instances import IntArray


class CompiledLoop:
    """One stage of some vertex functions."""

    def __init__(
        self, plans: Mapping[int, Plan], stage: str, memory: Memory, *, profile: bool = False
    ) -> None:
        source = write_loop(plans, stage, profile=profile)
        self._memory, self._arguments = memory, source.arguments
        self.arrays: list[NDArray[Any]] = []
        self._places = np.zeros(2 * len(source.arguments), dtype=np.int64)
        self._found_for = 0
        self._find()
        self.function: Callable[..., None] = load_generated(source.text(self.arrays), "loop")

    def call(self, batches: IntArray) -> Call:
        """The call that runs the stage of every (type, position) in order."""
        if self._found_for != self._memory.n_arranged:  # a round needs them as often as a stage
            self._find()
        return Call(self.function, self.arrays, self._places, np.ascontiguousarray(batches))

    def _find(self) -> None:
        self.arrays = [argument.find(self._memory) for argument in self._arguments]
        fill_all(self._places, self.arrays)
        self._found_for = self._memory.n_arranged
