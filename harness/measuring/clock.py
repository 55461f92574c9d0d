"""Clock of the harness, the only code that reads the time; it synchronizes before each reading."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from dynbatch.harness.contracts.system import PHASES
from dynbatch.harness.machine.process import disable_collector

N_EMPTY = 1000
Now = Callable[[], int]  # nanoseconds, monotonic
T = TypeVar("T")

now_ns: Now = time.perf_counter_ns  # the source of time, unless a test passes another
_NS = 1e-9
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run of a mini-batch: total seconds, and seconds of each marked phase."""

    total_s: float
    phases_s: Mapping[str, float] = field(default_factory=dict)


class PhaseClock:
    """Clock that times consecutive runs: start, marks by the system, stop.

    A run is marked or unmarked. In an unmarked run, marks neither synchronize nor read the time, so
    that the phases may overlap as they do without measurement.

    Args:
        synchronize: Waits for all work of the timed system.
        now_ns: Source of time.
    """

    def __init__(self, synchronize: Callable[[], None], now_ns: Now = now_ns) -> None:
        self._synchronize = synchronize
        self._now_ns = now_ns
        self._started: int | None = None
        self._previous = 0
        self._is_marked = True
        self._booked: dict[str, int] = {}

    def start(self, *, marked: bool = True) -> int:
        """Start a run and return its first reading in nanoseconds."""
        if self._started is not None:
            raise RuntimeError("the clock is already running; stop it before the next run")
        self._booked = {}
        self._is_marked = marked
        self._synchronize()
        self._started = self._previous = self._now_ns()
        return self._started

    def mark(self, phase: str) -> None:
        """Add the time since the previous mark to `phase`; a phase may be marked many times.

        Raises:
            ValueError: The phase is unknown.
            RuntimeError: No run has been started.
        """
        if phase not in PHASES:
            raise ValueError(f"unknown phase {phase!r}; choose one of {', '.join(PHASES)}")
        if self._started is None:
            raise RuntimeError("the clock is not running; a system marks phases inside run only")
        if not self._is_marked:
            return
        self._synchronize()
        now = self._now_ns()
        self._booked[phase] = self._booked.get(phase, 0) + now - self._previous
        self._previous = now

    def divide(self, shares: Mapping[str, float]) -> None:
        """Divide the time since the previous mark among phases; the next mark takes the rest.

        Args:
            shares: Fraction of the time by phase.

        Raises:
            ValueError: A phase is unknown, a fraction is negative, or their sum exceeds 1.
            RuntimeError: No run has been started.
        """
        if self._started is None:
            raise RuntimeError("the clock is not running; a system marks phases inside run only")
        if not self._is_marked or not shares:
            return
        check_shares(shares)
        self._synchronize()
        elapsed = self._now_ns() - self._previous
        for phase, share in shares.items():
            spent = int(share * elapsed)
            self._booked[phase] = self._booked.get(phase, 0) + spent
            self._previous += spent

    def stop(self) -> Sample:
        """Stop the run; time after the last mark counts only in the total."""
        if self._started is None:
            raise RuntimeError("the clock is not running; start it first")
        self._synchronize()
        total = self._now_ns() - self._started
        self._started = None
        return Sample(total * _NS, {name: ns * _NS for name, ns in self._booked.items()})


def time_call(
    work: Callable[[], T], synchronize: Callable[[], None], now_ns: Now = now_ns
) -> tuple[T, float]:
    """Call `work` once; return its result and its seconds, including asynchronous work."""
    clock = PhaseClock(synchronize, now_ns)
    clock.start()
    result = work()
    return result, clock.stop().total_s


def measure_empty_sample_s(synchronize: Callable[[], None], now_ns: Now = now_ns) -> float:
    """Return the seconds of an empty run, which limit the accuracy of every sample.

    This is the median of N_EMPTY empty runs, or the shortest positive one if that is longer.
    """
    clock = PhaseClock(synchronize, now_ns)
    samples_s: list[float] = []
    for _ in range(N_EMPTY):
        clock.start(marked=False)
        samples_s.append(clock.stop().total_s)
    return max(statistics.median(samples_s), min((s for s in samples_s if s > 0), default=0.0))


def check_shares(shares: Mapping[str, float]) -> None:
    """Check that fractions of a time belong to phases, are not negative and sum to at most 1."""
    for phase in shares:
        if phase not in PHASES:
            raise ValueError(f"unknown phase {phase!r}; choose one of {', '.join(PHASES)}")
    if any(share < 0 for share in shares.values()) or sum(shares.values()) > 1 + _ROUNDING:
        raise ValueError(
            f"invalid shares {dict(shares)}: expected at least 0 each and at most 1 together"
        )


@contextmanager
def pause_collector() -> Iterator[None]:
    """Disable Python's garbage collector in the timed region, equally for all systems."""
    with disable_collector():
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()  # objects dropped later may be in cycles, and their memory counts
