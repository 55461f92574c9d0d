"""Noise of the machine: work of others while a trial is timed, and signs of it beforehand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from harness.machine.facts import CPUS, Machine, gpu_is_throttled
from harness.machine.files import read_text
from harness.machine.process import of_family

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


LOW_MEMORY = 0.2  # of the machine's memory
WATCH_S = 0.5
UNEVEN = 0.10  # of a core's speed


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the machine's quiet; `advice` is empty where all is well."""

    name: str
    value: str
    advice: str = ""


def look_for_disturbance(machine: Machine, watch_s: float = WATCH_S) -> list[Finding]:
    """Watch the machine for a moment and list what may spoil a measurement."""
    disturbance = Disturbance("cpu")
    time.sleep(watch_s)
    return [
        judge_load(disturbance.other_cores()),
        judge_governor(machine),
        judge_turbo(machine),
        judge_memory(psutil.virtual_memory().available, machine.memory_bytes),
        judge_swap(psutil.swap_memory().used),
    ]


def judge_load(other_cores: float) -> Finding:
    """Work of other processes, in cores."""
    busy = other_cores > BUSY_CORES
    advice = f"more than {BUSY_CORES} cores are in use; end other work first" if busy else ""
    return Finding("other work", f"{other_cores:.2f} cores", advice)


def judge_core(rates_per_s: Sequence[float]) -> Finding:
    """How even the speed of a core is, in all but the slowest and fastest twentieth of looks."""
    low, high = np.quantile(rates_per_s, (0.05, 0.95))
    advice = "others share the core, or its clock moves; measure elsewhere, or take more rounds"
    uneven = low < (1 - UNEVEN) * high
    return Finding("core's speed", f"{low / high:.0%} to 100%", advice if uneven else "")


def judge_governor(machine: Machine) -> Finding:
    """Frequency governor; unknown in virtual machines."""
    value = machine.governor or "unknown"
    slow = value in ("powersave", "ondemand", "conservative", "schedutil")
    advice = "choose `performance` (cpupower frequency-set)" if slow else ""
    return Finding("governor", value, advice)


def judge_turbo(machine: Machine) -> Finding:
    """Turbo makes the speed depend on heat; it is recorded, not forbidden."""
    words = {None: "unknown", True: "on", False: "off"}
    return Finding("turbo", words[machine.turbo])


def judge_memory(available: int, total: int) -> Finding:
    """Memory that is free for a trial."""
    low = available < LOW_MEMORY * total
    value = f"{available / 2**30:.1f} of {total / 2**30:.1f} GiB"
    return Finding("free memory", value, "less than a fifth is free; end other work" if low else "")


def judge_swap(used: int) -> Finding:
    """Swap in use."""
    advice = "pages may come back during a measurement; free memory first" if used > 2**20 else ""
    return Finding("swap used", f"{used / 2**20:.0f} MiB", advice)
