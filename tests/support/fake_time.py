"""Clock that a test advances, a clock without readings, and a system with given durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynbatch.harness.contracts.system import PHASES, Clock, Counters, RunSettings
from dynbatch.harness.measuring.clock import check_shares
from dynbatch.systems.null_system import Control

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


class NullClock:
    """Clock without readings, for runs that are not measured; it refuses what a clock refuses."""

    def mark(self, phase: str) -> None:
        if phase not in PHASES:
            raise ValueError(f"unknown phase {phase!r}; choose one of {', '.join(PHASES)}")

    def divide(self, shares: Mapping[str, float]) -> None:
        check_shares(shares)


class Scripted(Control):
    """System whose phases take the time given by a mini-batch; loading also takes untimed time."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__(RunSettings("train", "cpu", 1, 1, 0.1, 0))
        self.time = time
        self.events: list[str] = []

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

    def counters(self) -> Counters:
        return Counters(n_batches=len(self.events), n_launches=None)

    def synchronize(self) -> None:
        self.events.append("synchronize")
