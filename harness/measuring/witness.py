"""The witness: sees what a system does beside the timed region, and what each run leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.contracts.model import Model, Weights
from harness.contracts.system import Clock, Parameters, Result, System
from harness.measuring.clock import Now, now_ns


class Witness(System):
    """A system as the passes see it.

    between_s: seconds from each `load` to the run behind it. losses: of each run. Both in the order
    of runs.
    """

    def __init__(self, system: System, now_ns: Now = now_ns) -> None:
        self.settings, self.options = system.settings, system.options
        self._system, self._now_ns = system, now_ns
        self.places_inputs = system.places_inputs
        # The system's own methods, so that nothing comes between it and the clock.
        self.synchronize = system.synchronize  # type: ignore[method-assign]
        self.counters = system.counters  # type: ignore[method-assign]
        self.between_s: list[float] = []
        self.losses: list[float] = []
        self._began = 0

    def load(self, instances: Sequence[Any]) -> None:
        """Ask what the last run left, and load."""
        self._began = self._now_ns()
        self.ask()
        self._system.load(instances)

    def upcoming(self, instances: Sequence[Any]) -> None:
        """The system hears of it; between `load` and `run`, as any untimed call."""
        self._system.upcoming(instances)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Run, after noting what was spent since `load` began."""
        self.between_s.append((self._now_ns() - self._began) * 1e-9)
        self._system.run(clock, update=update)

    def ask(self) -> None:
        """Ask for the loss of the last run, unless that was done."""
        if len(self.losses) < len(self.between_s):
            self.losses.append(self._system.last_loss())

    def testify(self, n_warm: int) -> tuple[list[float], float]:
        """Return the losses of all runs, and the median seconds between those behind n_warm."""
        self.ask()
        return self.losses, float(np.median(self.between_s[n_warm:]))

    def prepare(self, model: Model, weights: Weights) -> None:
        """Prepare the system."""
        self._system.prepare(model, weights)

    def result(self) -> Result:
        """The system's."""
        return self._system.result()

    def parameters(self) -> Parameters:
        """The system's."""
        return self._system.parameters()

    def last_loss(self) -> float:
        """The system's."""
        return self._system.last_loss()
