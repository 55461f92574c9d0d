"""How disturbed a machine is while a trial is measured."""

from __future__ import annotations

import time

import psutil

from harness.machine.family import of_family
from harness.machine.gpus import gpu_is_throttled
from harness.machine.system_files import CPUS, read_text

BUSY_CORES = 0.5  # more than this many cores used by others spoils a measurement


class Disturbance:
    """Watches a timed region from outside it: read before, read after, nothing in between."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._busy_s = _busy_cpu_seconds()
        self._own_s = _own_cpu_seconds()
        self._clock_s = time.monotonic()
        self._throttles = _throttle_count()

    def other_cores(self) -> float:
        """Cores used by other processes, or taken by the hypervisor, since the start."""
        elapsed = time.monotonic() - self._clock_s
        if elapsed <= 0:
            return 0.0
        others = _busy_cpu_seconds() - self._busy_s - (_own_cpu_seconds() - self._own_s)
        return max(0.0, others / elapsed)

    def warnings(self) -> tuple[str, ...]:
        """Return "busy" and "throttled" where they hold."""
        throttled = _throttle_count() > self._throttles
        if self._device == "cuda":
            throttled = throttled or gpu_is_throttled()
        found = {"busy": self.other_cores() > BUSY_CORES, "throttled": throttled}
        return tuple(name for name, doubtful in found.items() if doubtful)


def _busy_cpu_seconds() -> float:
    times = psutil.cpu_times()
    # Work with low priority still takes caches and turbo; psutil keeps it apart from user.
    more = (getattr(times, name, 0.0) for name in ("nice", "irq", "softirq", "steal"))
    return float(times.user + times.system + sum(more))


def _own_cpu_seconds() -> float:
    """Of this process and all below it, also of those that have ended and were waited for."""
    times = of_family(lambda process: process.cpu_times())
    ended = sum(one.children_user + one.children_system for one in times)
    return float(sum(one.user + one.system for one in times) + ended)


def _throttle_count() -> int:
    counters = CPUS.glob("cpu*/thermal_throttle/core_throttle_count")
    return sum(int(read_text(counter) or 0) for counter in counters)
