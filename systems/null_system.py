"""The null system: every step and no arithmetic; its time is the harness's own cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.contracts.model import Model, Weights
from harness.contracts.system import PHASES, Clock, Counters, Parameters, Result, System


class Adapter(System):
    """Takes mini-batches, marks every phase of the mode and computes nothing."""

    computes = False

    def prepare(self, model: Model, weights: Weights) -> None:
        self._weights = {name: value.copy() for name, value in weights.items()}
        self._phases = PHASES if self.settings.mode == "train" else PHASES[:3]

    def load(self, instances: Sequence[Any]) -> None:
        self._instances = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        for phase in self._phases:
            if update or phase != "update":
                clock.mark(phase)

    def result(self) -> Result:
        nothing = np.zeros((0, 0), dtype=np.float32)
        return Result(0.0, nothing, {}, Counters(n_batches=0, n_launches=0, bytes_copied=0))

    def parameters(self) -> Parameters:
        return {name: value.copy() for name, value in self._weights.items()}
