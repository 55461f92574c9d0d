"""How fast a core is at the moment, by a fixed piece of work.

Neighbours of a virtual machine who share its cores are in no counter of the guest: only work that
never changes shows them.
"""

from __future__ import annotations

import statistics

import numpy as np

from harness.measuring.clock import Now, PhaseClock, now_ns

N_VALUES = 4096  # in and out 32 KiB: they stay in a core's first cache, whatever its memory does
N_CALLS, N_WINDOWS = 200, 31  # about 10 ms: no pass becomes cold by it


def core_rate_per_s(now_ns: Now = now_ns) -> float:
    """Calls of one exponential function of 4096 floats per second, in the median of 31 windows.

    NumPy computes it by itself, on one thread and with vector instructions.
    """
    values = np.linspace(0.0, 1.0, N_VALUES, dtype=np.float32)
    out = np.empty_like(values)
    clock = PhaseClock(lambda: None, now_ns)
    windows_s: list[float] = []
    for _ in range(N_WINDOWS):
        clock.start(marked=False)
        for _ in range(N_CALLS):
            np.exp(values, out=out)
        windows_s.append(clock.stop().total_s)
    return N_CALLS / max(statistics.median(windows_s), 1e-9)
