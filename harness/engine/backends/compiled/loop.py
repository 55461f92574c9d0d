"""Runs a stage of all batches in one call of compiled code (CPU; see loop_source)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.places import Argument
from harness.engine.backends.compiled.source import LoopSource, write_loop
from harness.engine.cpu_kernels import blas, loss_kernels, memory_kernels, row_kernels
from harness.engine.cpu_kernels.blas import SCRATCH
from harness.engine.cpu_kernels.generated import load_generated
from harness.engine.lowering.plan import Plan
from harness.engine.memory.bound import Bound, Tally
from harness.engine.rows.layout import EMPTY
from harness.values.instances import IntArray

CALLED = (blas, loss_kernels, memory_kernels, row_kernels)
NO_ROWS = np.zeros(1, dtype=np.int32)  # stands in for the rows of a type that a mini-batch lacks


class CompiledLoop:
    """One stage ("batch" or "backward") of all vertex functions."""

    def __init__(self, source: LoopSource, bound: Mapping[int, Bound]) -> None:
        self.bound, self.arguments = bound, source.arguments
        self.function = load_generated(source.text, "loop", CALLED)
        self.tally: NDArray[np.int64] = np.zeros(2, dtype=np.int64)

    def run(self, batches: IntArray, tally: Tally) -> None:
        """Run the stage of every (type, position) in order."""
        assert SCRATCH is not None
        types, positions = batches[:, 0].copy(), batches[:, 1].copy()
        self.tally[:] = 0
        arrays = [self._array(argument) for argument in self.arguments]
        self.function(types, positions, self.tally, *SCRATCH, *arrays)
        tally.n_launches += int(self.tally[0])
        tally.bytes_copied += int(self.tally[1])

    def _array(self, argument: Argument) -> Any:
        kind, name = argument.kind, argument.name
        bound = self.bound[argument.type] if argument.type else next(iter(self.bound.values()))
        if kind == "buffer":
            return bound.space.matrix(str(name)).array
        if kind == "parameter":
            return bound.parameters.arrays[str(name)]
        if not bound.is_bound:
            return EMPTY if kind in ("pull", "index", "first", "edge_start") else NO_ROWS
        geometry = bound.geometry
        if kind == "starts":
            return geometry.rows.starts
        if kind == "first_row":
            return geometry.rows.first_row
        if kind == "pull":
            return geometry.pulls[str(name)]
        gather = geometry.gathers[None if kind == "edge_start" else name]  # type: ignore[index]
        return getattr(gather, kind)


def compile_loop(
    plans: Mapping[int, Plan], bound: Mapping[int, Bound], stage: str
) -> CompiledLoop | None:
    """Return the CompiledLoop of a stage, or None where it has none here."""
    if SCRATCH is None:
        return None
    source = write_loop(plans, stage)
    return None if source is None else CompiledLoop(source, bound)
