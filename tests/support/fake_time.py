"""Clock that a test advances, and a system with given durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.system import (
    Clock,
    Counters,
    Parameters,
    Result,
    RunSettings,
    System,
)

MS = 1_000_000


class FakeTime:
    """Clock that advances only by `move`, and counts its readings."""

    def __init__(self) -> None:
        self.now = 5_000 * MS
        self.n_readings = 0

    def __call__(self) -> int:
        self.n_readings += 1
        return self.now

    def move(self, milliseconds: float) -> None:
        self.now += round(milliseconds * MS)


class Scripted(System):
    """System whose phases take the time given by a mini-batch; loading also takes untimed time."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__(RunSettings("train", "cpu", 1, 1, 0.1, 0))
        self.time = time
        self.events: list[str] = []

    def prepare(self, model: Any, weights: Any) -> None:
        self.events.append("prepare")

    def load(self, instances: Sequence[Any]) -> None:
        self.events.append("load")
        self.time.move(1000)
        self.costs = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.events.append("run")
        for phase, cost in zip(("construct", "forward"), self.costs, strict=True):
            self.time.move(cost)
            clock.mark(phase)
        self.time.move(0.5)  # after the last mark

    def result(self) -> Result:
        return Result(0.0, np.zeros(0), {}, Counters(n_batches=len(self.events), n_launches=None))

    def parameters(self) -> Parameters:
        return {}

    def synchronize(self) -> None:
        self.events.append("synchronize")
