"""The reference as a system: one vertex at a time in NumPy float64; slow, correct by definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, Weights, explain_untrainable
from dynbatch.harness.contracts.system import (
    Clock,
    Counters,
    Parameters,
    Result,
    RunSettings,
    System,
)
from dynbatch.harness.reference import run_reference


class Adapter(System):
    """Reference system. It builds no graph of its own, so it can separate only the update."""

    phases = ("update",)

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        if settings.device != "cpu":
            return "the reference runs on a CPU only; set device=cpu"
        return explain_untrainable(model, settings.mode)

    def prepare(self, model: Model, weights: Weights) -> None:
        self._model = model
        self._weights = {name: value.astype(np.float64) for name, value in weights.items()}

    def load(self, instances: Sequence[Any]) -> None:
        self._instances = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        mode = self.settings.mode
        result = run_reference(self._model, self._weights, self._instances, mode)
        self._result = Result(result.loss, result.outputs, result.gradients, Counters())
        clock.mark("backward" if mode == "train" else "forward")
        if mode == "train" and update:
            for name, gradient in result.gradients.items():
                self._weights[name] -= self.settings.learning_rate * gradient
            clock.mark("update")

    def result(self) -> Result:
        return self._result

    def parameters(self) -> Parameters:
        return {name: value.copy() for name, value in self._weights.items()}
