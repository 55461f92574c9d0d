"""Runs a stage of batches in one call of compiled code (see source.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backend import Tally
from harness.engine.backends.compiled.memory import Memory
from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels import blas
from harness.engine.generated import load_generated
from harness.engine.lowering.plan import Plan
from harness.values.instances import IntArray


class CompiledLoop:
    """One stage of some vertex functions."""

    def __init__(
        self,
        plans: Mapping[int, Plan],
        stage: str,
        memory: Memory,
        multiplying: blas.Scratch,
        *,
        profile: bool = False,
    ) -> None:
        source = write_loop(plans, stage, profile=profile)
        self._memory, self._arguments = memory, source.arguments
        self._multiplying = multiplying
        self._function = load_generated(source.text, "loop")
        self._tally: NDArray[np.int64] = np.zeros(3, dtype=np.int64)
        self._arrays: list[NDArray[Any]] = []
        self._found_for = 0

    def run(self, batches: IntArray, tally: Tally) -> None:
        """Run the stage of every (type, position) in order."""
        types, positions = batches[:, 0].copy(), batches[:, 1].copy()
        self._tally[:] = 0
        if self._found_for != self._memory.n_arranged:  # a round needs them as often as a stage
            self._arrays = [argument.find(self._memory) for argument in self._arguments]
            self._found_for = self._memory.n_arranged
        self._function(types, positions, self._tally, *self._multiplying, *self._arrays)
        tally.n_launches += int(self._tally[0])
        tally.bytes_copied += int(self._tally[1])
        tally.n_moving_cycles += int(self._tally[2])
