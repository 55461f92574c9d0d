"""The stopwatch of the harness: the only reader of the time, always after a synchronise."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from harness.contracts.choice import Stopwatch
from harness.contracts.system import PHASES
from harness.machine.process import collector_resting

Now = Callable[[], int]  # nanoseconds, never going back
T = TypeVar("T")

now_ns: Now = time.perf_counter_ns  # the source of time unless a test gives its own
_NS = 1e-9
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run of a mini-batch: seconds in all, and seconds booked on each marked phase."""

    total_s: float
    phases_s: Mapping[str, float] = field(default_factory=dict)


class PhaseClock:
    """Times one run after another: start, marks by the system, stop.

    A run is marked or whole: in a whole one marks are neither waited for nor read, so that work of
    one phase may go on while the next begins, as it does when nobody looks.

    synchronize: waits for all work of the system that is being timed.
    now_ns: the source of time.
    """

    def __init__(self, synchronize: Callable[[], None], now_ns: Now = now_ns) -> None:
        self._synchronize = synchronize
        self._now_ns = now_ns
        self._started: int | None = None
        self._previous = 0
        self._is_marked = True
        self._booked: dict[str, int] = {}

    def start(self, *, marked: bool = True) -> int:
        """Begin a run and return its first reading; raises RuntimeError if one is going on."""
        if self._started is not None:
            raise RuntimeError("the clock runs already; stop it before the next run")
        self._booked = {}
        self._is_marked = marked
        self._synchronize()
        self._started = self._previous = self._now_ns()
        return self._started

    def mark(self, phase: str) -> None:
        """Book the time since the previous mark on `phase`; a phase may be marked many times.

        Raises ValueError for a word that is no phase, RuntimeError outside a run.
        """
        if phase not in PHASES:
            raise ValueError(f"{phase} is no phase; choose one of {', '.join(PHASES)}")
        if self._started is None:
            raise RuntimeError("the clock is not running; a system marks phases inside run only")
        if not self._is_marked:
            return
        self._synchronize()
        now = self._now_ns()
        self._booked[phase] = self._booked.get(phase, 0) + now - self._previous
        self._previous = now

    def divide(self, shares: Mapping[str, float]) -> None:
        """Book these shares of the time since the previous mark; the next mark books the rest.

        Raises as `mark`, and ValueError for shares that are no parts of a whole.
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
        """End the run; time after the last mark counts in the total only."""
        if self._started is None:
            raise RuntimeError("the clock is not running; start it before it is stopped")
        self._synchronize()
        total = self._now_ns() - self._started
        self._started = None
        return Sample(total * _NS, {name: ns * _NS for name, ns in self._booked.items()})


def timed(
    work: Callable[[], T], synchronize: Callable[[], None], now_ns: Now = now_ns
) -> tuple[T, float]:
    """Do `work` once; returns what it returned and its seconds, what it left running included."""
    clock = PhaseClock(synchronize, now_ns)
    clock.start()
    result = work()
    return result, clock.stop().total_s


def stopwatch_of(synchronize: Callable[[], None], now_ns: Now = now_ns) -> Stopwatch:
    """The stopwatch that a system is lent to choose by (System.choose)."""

    def seconds(work: Callable[[], object]) -> float:
        return timed(work, synchronize, now_ns)[1]

    return seconds


def empty_sample_s(
    synchronize: Callable[[], None], now_ns: Now = now_ns, n_samples: int = 1000
) -> float:
    """What the clock shows where nothing is done: no sample can be told more exactly.

    The median of n_samples empty runs, or the least step of the clock where that is more.
    """
    clock = PhaseClock(synchronize, now_ns)
    found: list[float] = []
    for _ in range(n_samples):
        clock.start(marked=False)
        found.append(clock.stop().total_s)
    return max(statistics.median(found), min((s for s in found if s > 0), default=0.0))


class NullClock:
    """Takes marks and reads no time, for runs that are not measured."""

    def mark(self, phase: str) -> None:
        """Accept a mark; raises ValueError for a word that is no phase."""
        if phase not in PHASES:
            raise ValueError(f"{phase} is no phase; choose one of {', '.join(PHASES)}")

    def divide(self, shares: Mapping[str, float]) -> None:
        """Accept shares; raises ValueError where they are none."""
        check_shares(shares)


def check_shares(shares: Mapping[str, float]) -> None:
    """Raise ValueError for a word that is no phase, and for shares that are no parts of a whole."""
    for phase in shares:
        if phase not in PHASES:
            raise ValueError(f"{phase} is no phase; choose one of {', '.join(PHASES)}")
    if any(share < 0 for share in shares.values()) or sum(shares.values()) > 1 + _ROUNDING:
        raise ValueError(f"{dict(shares)} are no shares of a time: none below 0, together up to 1")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's garbage collector out of the timed region, for all systems alike."""
    with collector_resting():
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()  # what is dropped later may be in a cycle, and is memory that counts


N_VALUES = 4096  # in and out 32 KiB: they stay in a core's first cache, whatever its memory does
N_CALLS = 200  # about 0.5 ms
PAUSE_NS = 20_000_000  # passes may take microseconds


class CoreWatch:
    """Calls one exponential function of 4096 floats, which NumPy computes by itself on one thread.

    now_ns: the source of time. pause_ns: at least, between two looks.
    """

    def __init__(self, now_ns: Now = now_ns, pause_ns: int = PAUSE_NS) -> None:
        self._now_ns, self._pause_ns = now_ns, pause_ns
        self._clock = PhaseClock(lambda: None, now_ns)
        self._values = np.linspace(0.0, 1.0, N_VALUES, dtype=np.float32)
        self._out = np.exp(self._values)
        self._seconds: list[float] = []
        self._looked_at: int | None = None

    def look(self) -> None:
        """Do the work, unless that was done just now."""
        if self._looked_at is not None and self._now_ns() - self._looked_at < self._pause_ns:
            return
        self._clock.start(marked=False)
        for _ in range(N_CALLS):
            np.exp(self._values, out=self._out)
        self._seconds.append(self._clock.stop().total_s)
        self._looked_at = self._now_ns()

    @property
    def rate_per_s(self) -> float | None:
        """Calls per second in the median of all looks, as the speed is of the median pass.

        None before the first, and where the clock saw no time go by.
        """
        median = statistics.median(self._seconds) if self._seconds else 0.0
        return N_CALLS / median if median > 0 else None

    @property
    def rates_per_s(self) -> tuple[float, ...]:
        """Calls per second in each look for which the clock saw time go by."""
        return tuple(N_CALLS / seconds for seconds in self._seconds if seconds > 0)


def watch_core(n_looks: int = 2000) -> tuple[float, ...]:
    """Calls per second of a core that is never idle meanwhile, for about a second."""
    watch = CoreWatch(pause_ns=0)
    for _ in range(n_looks):
        watch.look()
    return watch.rates_per_s
