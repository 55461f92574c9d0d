"""No-op system: all steps without arithmetic; its time is the overhead of the harness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import PHASES, Clock, Counters, Parameters, Result, System


class Control(System):
    """Base class of systems that compute nothing of the model."""

    computes = False

    def prepare(self, model: Model, weights: Weights) -> None:
        self._weights = {name: value.copy() for name, value in weights.items()}

    def load(self, instances: Sequence[Any]) -> None:
        self._instances = instances

    def result(self) -> Result:
        return Result(0.0, np.zeros((0, 0), dtype=np.float32), {}, self.counters())

    def parameters(self) -> Parameters:
        return {name: value.copy() for name, value in self._weights.items()}

    def last_loss(self) -> float:
        return 0.0


class Adapter(Control):
    """System that accepts mini-batches, marks every phase of the mode and computes nothing."""

    def prepare(self, model: Model, weights: Weights) -> None:
        super().prepare(model, weights)
        self._phases = PHASES if self.settings.mode == "train" else PHASES[:3]

    def run(self, clock: Clock, *, update: bool = True) -> None:
        for phase in self._phases:
            if update or phase != "update":
                clock.mark(phase)

    def counters(self) -> Counters:
        return Counters(n_batches=0, n_launches=0, bytes_copied=0)
