"""Noise of the machine: background load while a trial is timed, and checks beforehand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from harness.machine.cgroup import count_throttled_periods
from harness.machine.facts import CPUS, Machine, is_gpu_throttled
from harness.machine.files import read_text
from harness.machine.process import apply_to_family

BUSY_CORES = 0.5  # more background load, in cores, spoils a measurement


class Disturbance:
    """Monitor of a timed region that reads counters only before and after it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._busy_s = _read_busy_cpu_seconds()
        self._own_s = _read_own_cpu_seconds()
        self._clock_s = time.monotonic()
        self._throttles = _count_throttles()
        self._paused = count_throttled_periods()

    def measure_other_cores(self) -> float:
        """Return the cores used by other processes or the hypervisor since the start."""
        elapsed = time.monotonic() - self._clock_s
        if elapsed <= 0:
            return 0.0
        others = _read_busy_cpu_seconds() - self._busy_s - (_read_own_cpu_seconds() - self._own_s)
        return max(0.0, others / elapsed)

    def list_warnings(self) -> tuple[str, ...]:
        """Return the warnings "background_load", "throttled" and "cpu_quota" that apply."""
        throttled = _count_throttles() > self._throttles
        if self._device == "cuda":
            throttled = throttled or is_gpu_throttled()
        checks = {
            "background_load": self.measure_other_cores() > BUSY_CORES,
            "throttled": throttled,
            "cpu_quota": count_throttled_periods() > self._paused,
        }
        return tuple(name for name, doubtful in checks.items() if doubtful)


def _read_busy_cpu_seconds() -> float:
    times = psutil.cpu_times()
    # Low-priority work also uses caches and turbo; psutil does not include it in user.
    more = (getattr(times, name, 0.0) for name in ("nice", "irq", "softirq", "steal"))
    return float(times.user + times.system + sum(more))


def _read_own_cpu_seconds() -> float:
    """Return the CPU seconds of this process and all its descendants, including ended ones."""
    times = apply_to_family(lambda process: process.cpu_times())
    ended = sum(cpu_times.children_user + cpu_times.children_system for cpu_times in times)
    return float(sum(cpu_times.user + cpu_times.system for cpu_times in times) + ended)


def _count_throttles() -> int:
    counters = CPUS.glob("cpu*/thermal_throttle/core_throttle_count")
    return sum(int(read_text(counter) or 0) for counter in counters)


LOW_MEMORY = 0.2  # fraction of the machine's memory
WATCH_S = 0.5
UNEVEN = 0.10  # relative to a core's highest speed


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one noise check; `advice` is empty if it passed."""

    name: str
    value: str
    advice: str = ""


def check_noise(machine: Machine, watch_s: float = WATCH_S) -> list[Finding]:
    """Monitor the machine for a moment and return the results of all noise checks."""
    disturbance = Disturbance("cpu")
    time.sleep(watch_s)
    return [
        judge_load(disturbance.measure_other_cores()),
        judge_quota(machine.cpu_quota),
        judge_governor(machine),
        judge_turbo(machine),
        judge_memory(psutil.virtual_memory().available, machine.memory_bytes),
        judge_swap(psutil.swap_memory().used),
    ]


def judge_load(other_cores: float) -> Finding:
    """Check the background load, in cores."""
    busy = other_cores > BUSY_CORES
    advice = f"more than {BUSY_CORES} cores are in use; stop other processes first" if busy else ""
    return Finding("other work", f"{other_cores:.2f} cores", advice)


def judge_quota(quota: float | None) -> Finding:
    """Check the CPU quota of the container, in cores."""
    if quota is None:
        return Finding("CPU quota", "none")
    advice = "the container is paused when it exceeds its quota; give it whole CPUs (a CPU set)"
    return Finding("CPU quota", f"{quota:.2g} cores", advice)


def judge_core(rates_per_s: Sequence[float]) -> Finding:
    """Check the variation of a core's speed between the 5% and 95% quantiles."""
    low, high = np.quantile(rates_per_s, (0.05, 0.95))
    advice = "the core is shared or its clock varies; use another machine or set more rounds"
    uneven = low < (1 - UNEVEN) * high
    return Finding("core's speed", f"{low / high:.0%} to 100%", advice if uneven else "")


def judge_governor(machine: Machine) -> Finding:
    """Check the frequency governor, which is unknown in virtual machines."""
    value = machine.governor or "unknown"
    slow = value in ("powersave", "ondemand", "conservative", "schedutil")
    advice = "choose `performance` (cpupower frequency-set)" if slow else ""
    return Finding("governor", value, advice)


def judge_turbo(machine: Machine) -> Finding:
    """Report turbo, which makes the speed depend on heat; it is recorded but allowed."""
    labels = {None: "unknown", True: "on", False: "off"}
    return Finding("turbo", labels[machine.turbo])


def judge_memory(available: int, total: int) -> Finding:
    """Check the memory available to a trial, in bytes."""
    low = available < LOW_MEMORY * total
    value = f"{available / 2**30:.1f} of {total / 2**30:.1f} GiB"
    return Finding(
        "free memory", value, "less than 20% is free; stop other processes" if low else ""
    )


def judge_swap(used: int) -> Finding:
    """Check the swap space in use, in bytes."""
    advice = (
        "pages may be swapped in during a measurement; free memory first" if used > 2**20 else ""
    )
    return Finding("swap used", f"{used / 2**20:.0f} MiB", advice)
