"""How fast a core is while a trial is timed, by a fixed piece of work between passes.

Neighbours of a virtual machine who share its cores are in no counter of the guest: only work that
never changes shows them. On one such machine it was done 345 000 or 457 000 times a second, for
seconds at a time.
"""

from __future__ import annotations

import statistics

import numpy as np

from harness.measuring.clock import Now, PhaseClock, now_ns

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
