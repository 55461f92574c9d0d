"""Upper bound on memory or cache bandwidth: copies of an array and no other work.

NumPy copies an array of `n_bytes` into another one repeatedly, which calls the C library; on a GPU,
PyTorch copies within its memory. Read and written bytes both count, as in STREAM's copy (McCalpin,
1995). The model and its inputs are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import Clock, Counters, RunSettings
from dynbatch.systems.null_system import Control

ON_CUDA = "dynbatch.systems.on_torch.bounds"
CUDA_CHECK = "dynbatch.harness.engine.torch_cuda"
ITEM_BYTES = 4
LEAST_ON_CUDA = 2**24
LEAST_BYTES, COPIED_BYTES = 4096, 2**28  # per array; per run, so that a run takes milliseconds


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Options of the copy system.

    Attributes:
        n_bytes: size of the array; an array much larger than the last-level cache measures memory.
    """

    n_bytes: Annotated[int, Ge(LEAST_BYTES)] = 2**28


class CpuCopies:
    """Two arrays, one of which is copied to the other."""

    def __init__(self, n_bytes: int) -> None:
        n = n_bytes // ITEM_BYTES
        self._source, self._target = np.ones(n, np.float32), np.zeros(n, np.float32)

    def run(self) -> None:
        np.copyto(self._target, self._source)

    def synchronize(self) -> None:
        """Do nothing: a copy is complete when its call returns."""


class Adapter(Control):
    """System that copies COPIED_BYTES per run, and at least one array."""

    option_type = CopyOptions
    options: CopyOptions
    phases = ("forward",)

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the trial is not for one CPU thread or a large array on a GPU."""
        if settings.device != "cpu":
            if cls.options_of(settings).n_bytes < LEAST_ON_CUDA:
                return (
                    "a small copy on a GPU measures its launch: expected at least"
                    f" {LEAST_ON_CUDA} bytes; raise system.options.n_bytes"
                )
            reason: str | None = import_module(CUDA_CHECK).explain_no_cuda()
            return reason
        if settings.threads != 1:
            return "it copies with one thread only; set threads=1"
        return None

    def prepare(self, model: Model, weights: Weights) -> None:
        """Allocate both arrays and write to all their pages."""
        super().prepare(model, weights)
        n_bytes = self.options.n_bytes // ITEM_BYTES * ITEM_BYTES
        if self.settings.device != "cpu":
            self._copies: Any = import_module(ON_CUDA).Copies(self.settings.device, n_bytes)
        else:
            self._copies = CpuCopies(n_bytes)
        self._n_bytes, self._n_copies = n_bytes, max(1, COPIED_BYTES // n_bytes)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        for _ in range(self._n_copies):
            self._copies.run()
        clock.mark("forward")

    def synchronize(self) -> None:
        """Wait for the device, once there are arrays on it."""
        if hasattr(self, "_copies"):
            self._copies.synchronize()

    def counters(self) -> Counters:
        n_bytes = 2 * self._n_copies * self._n_bytes
        return Counters(n_launches=self._n_copies, bytes_touched=n_bytes)
