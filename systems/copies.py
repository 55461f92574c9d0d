"""Copies of an array and nothing else: what memory, or a cache, gives at most.

An array of `n_bytes` is copied into another, again and again, by NumPy, which leaves it to the C
library. Read and written bytes both count, as in STREAM's copy (McCalpin, 1995). The model and its
inputs have no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from harness.contracts.model import Model, Weights
from harness.contracts.system import Clock, Counters, RunSettings
from systems.null_system import Control

LEAST_BYTES, COPIED_BYTES = 4096, 2**28  # of an array; of a run, so that one takes milliseconds


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """n_bytes: of the array; several times as large as the last cache, it tells of memory."""

    n_bytes: Annotated[int, Ge(LEAST_BYTES)] = 2**28


class Adapter(Control):
    """Copies as often as comes to COPIED_BYTES a run, at least once."""

    option_type = CopyOptions
    options: CopyOptions
    phases = ("forward",)

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """On another device it would be another memory."""
        if settings.device != "cpu":
            return "it copies in the memory of a CPU; use device=cpu"
        if settings.threads != 1:
            return "it copies with one thread; use threads=1"
        return None

    def prepare(self, model: Model, weights: Weights) -> None:
        """Make room, and touch all of it."""
        super().prepare(model, weights)
        n = self.options.n_bytes // np.dtype(np.float32).itemsize
        self._source, self._target = np.ones(n, np.float32), np.zeros(n, np.float32)
        self._n_copies = max(1, COPIED_BYTES // self._source.nbytes)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Copy."""
        for _ in range(self._n_copies):
            np.copyto(self._target, self._source)
        clock.mark("forward")

    def counters(self) -> Counters:
        """Bytes read and written."""
        n_bytes = 2 * self._n_copies * self._source.nbytes
        return Counters(n_launches=self._n_copies, bytes_touched=n_bytes)
