"""How fast a core and the memory are at the moment, each by a fixed piece of work.

Neighbours of a virtual machine who share its cores, caches and memory are in no counter of the
guest: only work that never changes shows them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.measuring.clock import Now, PhaseClock, now_ns

N_VALUES = 4096  # in and out 32 KiB: they stay in a core's first cache, whatever its memory does
N_CALLS, N_CORE_WINDOWS = 200, 31  # about 10 ms
COPIED_BYTES = 2**24  # from and to: more than the part of a last cache that one core has
N_MEMORY_WINDOWS = 11  # about 30 ms


class MachineRates(NamedTuple):
    """Both at one moment."""

    core_per_s: float
    memory_bytes_per_s: float


def machine_rates(now_ns: Now = now_ns) -> MachineRates | None:
    """Take both rates; what it needs of memory is given back. None where it gets none.

    A trial at its limit of memory does not end for it.
    """
    try:
        return MachineRates(core_rate_per_s(now_ns), memory_rate_bytes_per_s(now_ns))
    except MemoryError:
        return None


def core_rate_per_s(now_ns: Now = now_ns) -> float:
    """Calls of one exponential function of 4096 floats per second.

    NumPy computes it by itself, on one thread and with vector instructions.
    """
    values = np.linspace(0.0, 1.0, N_VALUES, dtype=np.float32)
    out = np.empty_like(values)

    def work() -> None:
        for _ in range(N_CALLS):
            np.exp(values, out=out)

    return N_CALLS / _middle_window_s(work, N_CORE_WINDOWS, now_ns)


def memory_rate_bytes_per_s(now_ns: Now = now_ns) -> float:
    """Bytes copied per second, from 16 MiB to 16 others, on one thread."""
    source, target = np.ones(COPIED_BYTES, np.uint8), np.empty(COPIED_BYTES, np.uint8)
    np.copyto(target, source)  # its pages are made here
    seconds = _middle_window_s(lambda: np.copyto(target, source), N_MEMORY_WINDOWS, now_ns)
    return COPIED_BYTES / seconds


def _middle_window_s(work: Callable[[], object], n_windows: int, now_ns: Now) -> float:
    """Median seconds of doing it once: a few interruptions do not count."""
    clock = PhaseClock(lambda: None, now_ns)
    windows_s: list[float] = []
    for _ in range(n_windows):
        clock.start(marked=False)
        work()
        windows_s.append(clock.stop().total_s)
    return max(statistics.median(windows_s), 1e-9)  # a clock may not have moved
