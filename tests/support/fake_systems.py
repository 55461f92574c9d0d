"""An adapter that is right, or goes wrong in the way that `system.options.fault` names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

from harness.contracts.model import Model, Weights
from harness.contracts.system import Clock, Counters, Result, RunSettings
from harness.errors import ScheduleError, UnsupportedTrial
from systems.on_core.reference import Adapter as Reference


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """What goes wrong, if anything; pid_file takes the worker's process id."""

    fault: str | None = None
    pid_file: str | None = None


class Adapter(Reference):
    """The oracle with faults."""

    phases = ("backward", "update")
    option_type = FakeOptions
    options: FakeOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.fault = self.options.fault
        self.n_runs = 0
        self.n_compiled_for = 0
        self.first_outputs = np.zeros(0)

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        return "not on this machine" if cls.options_of(settings).fault == "skip" else None

    def prepare(self, model: Model, weights: Weights) -> None:
        super().prepare(model, weights)
        if self.options.pid_file:
            Path(self.options.pid_file).write_text(str(os.getpid()))
        if self.fault == "abort":
            os.abort()
        if self.fault == "raise":
            raise ValueError("a fault\nover two lines")
        if self.fault == "hang":
            sleep(600)
        if self.fault == "allocate":
            _allocate_without_end()
        if self.fault == "memory_error":
            raise MemoryError("no room for a tensor")
        if self.fault == "schedule":
            raise ScheduleError("policy odd: vertex 2 runs in batch 3, not after its argument 0")
        if self.fault == "unsupported":
            raise UnsupportedTrial("this model is too odd")

    def compile_for(self, instances: Sequence[Any]) -> None:
        if self.fault == "slow_compiler":
            sleep(0.2)
        self.n_compiled_for += 1

    def n_compilations(self) -> int:
        return self.n_runs if self.fault == "compiles_always" else self.n_compiled_for

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.n_runs += 1
        bias = self._weights["b"].copy()
        super().run(clock, update=update and self.fault != "no_update")
        if self.fault == "bias_not_updated":
            self._weights["b"] = bias

    def result(self) -> Result:
        found = super().result()
        if self.fault == "wrong_loss":
            found = replace(found, loss=found.loss * 1.01)
        if self.fault == "wrong_gradient":
            wrong = {name: value * 1.01 for name, value in found.gradients.items()}
            found = replace(found, gradients=wrong)
        if self.fault == "nan":
            found = replace(found, outputs=np.full_like(found.outputs, np.nan))
        if self.fault == "stale_outputs":
            self.first_outputs = self.first_outputs if self.n_runs > 1 else found.outputs
            found = replace(found, outputs=self.first_outputs)
        if self.fault == "rounds":
            noise = np.random.default_rng(self.n_runs).normal(size=found.outputs.shape)
            found = replace(found, outputs=found.outputs * (1 + 1e-5 * noise))
        return replace(found, counters=Counters(n_batches=self.n_runs, n_launches=None))

    def versions(self) -> dict[str, str]:
        return {"fake": "1.0"}


def _allocate_without_end() -> None:
    blocks: list[Any] = []
    while True:
        blocks.append(np.ones(2**21))  # 16 MiB
        sleep(0.002)
