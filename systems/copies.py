"""Upper bound on memory or cache bandwidth: copies of an array and no other work.

NumPy copies an array of `n_bytes` into another one repeatedly, which calls the C library. Read and
written bytes both count, as in STREAM's copy (McCalpin, 1995). The model and its inputs are not
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import Clock, Counters, RunSettings
from dynbatch.systems.null_system import Control

LEAST_BYTES, COPIED_BYTES = 4096, 2**28  # per array; per run, so that a run takes milliseconds


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Options of the copy system.

    Attributes:
        n_bytes: size of the array; an array much larger than the last-level cache measures memory.
    """

    n_bytes: Annotated[int, Ge(LEAST_BYTES)] = 2**28


class Adapter(Control):
    """System that copies COPIED_BYTES per run, and at least one array."""

    option_type = CopyOptions
    options: CopyOptions
    phases = ("forward",)

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the trial is not for one CPU thread."""
        if settings.device != "cpu":
            return "it copies CPU memory only; set device=cpu"
        if settings.threads != 1:
            return "it copies with one thread only; set threads=1"
        return None

    def prepare(self, model: Model, weights: Weights) -> None:
        """Allocate both arrays and write to all their pages."""
        super().prepare(model, weights)
        n = self.options.n_bytes // np.dtype(np.float32).itemsize
        self._source, self._target = np.ones(n, np.float32), np.zeros(n, np.float32)
        self._n_copies = max(1, COPIED_BYTES // self._source.nbytes)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Copy the array as often as COPIED_BYTES requires."""
        for _ in range(self._n_copies):
            np.copyto(self._target, self._source)
        clock.mark("forward")

    def counters(self) -> Counters:
        """Return the number of copies, and the bytes read and written."""
        n_bytes = 2 * self._n_copies * self._source.nbytes
        return Counters(n_launches=self._n_copies, bytes_touched=n_bytes)
