"""Noise of the machine: what keeps a timed process from its CPU, and checks beforehand."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from dynbatch.harness.machine.cgroup import count_throttled_periods
from dynbatch.harness.machine.facts import CPUS, GpuReading, Machine, read_gpu, read_huge_pages
from dynbatch.harness.machine.files import read_text
from dynbatch.harness.machine.process import apply_to_family

BUSY_CORES = 0.5  # more background load, in cores, spoils a measurement
DISTURBED = 0.02  # share of a turn's time that it may be kept from its CPU
_TASKS = Path("/proc/self/task")
_NS = 1e-9


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Counters of how the kernel has scheduled this process, or their difference over a turn.

    Attributes:
        cpu_s: CPU seconds of all threads, and of running descendants.
        steal_s: Seconds that the hypervisor took from the CPUs of this machine.
        wait_s: Seconds that threads were ready to run but had no CPU, summed over threads.
        n_switches: Involuntary context switches.
        n_paused: Periods in which a container's CPU quota paused this process.
    """

    cpu_s: float
    steal_s: float
    wait_s: float
    n_switches: int
    n_paused: int

    def since(self, before: Scheduling) -> Scheduling:
        """Return the difference to an earlier reading; an ended thread takes its waits along."""
        return Scheduling(
            self.cpu_s - before.cpu_s,
            self.steal_s - before.steal_s,
            max(0.0, self.wait_s - before.wait_s),
            self.n_switches - before.n_switches,
            self.n_paused - before.n_paused,
        )

    def is_disturbed(self, elapsed_s: float, n_threads: int) -> bool:
        """Return whether the process was kept from its CPUs for more than DISTURBED of the time.

        Threads of the process also wait for each other, at most until all of its CPU time is used:
        what it waited for others is not more than the CPU time that it did not get.

        Args:
            elapsed_s: Seconds of the turn.
            n_threads: Threads that the process may compute with.
        """
        allowed_s = DISTURBED * elapsed_s
        kept_s = min(self.wait_s, n_threads * elapsed_s - self.cpu_s)
        return self.steal_s > allowed_s or kept_s > allowed_s or self.n_paused > 0


def read_scheduling(*, at_start: bool = False) -> Scheduling:
    """Read the counters of this process.

    Args:
        at_start: Whether the interval of interest starts now and does not end: CPU time is then
            read last, so that the interval does not contain the time of reading.
    """
    usage = None if at_start else resource.getrusage(resource.RUSAGE_SELF)
    steal_s = float(getattr(psutil.cpu_times(), "steal", 0.0))
    wait_s, n_paused = _read_wait_s(), count_throttled_periods()
    usage = usage or resource.getrusage(resource.RUSAGE_SELF)
    return Scheduling(
        cpu_s=usage.ru_utime + usage.ru_stime + _read_descendants_cpu_s(),
        steal_s=steal_s,
        wait_s=wait_s,
        n_switches=usage.ru_nivcsw,
        n_paused=n_paused,
    )


def _read_descendants_cpu_s() -> float:
    """Return the CPU seconds of all running descendants; most systems have none."""
    texts = (read_text(task / "children") for task in _TASKS.glob("*"))
    if not any(text and text.strip() for text in texts):
        return 0.0
    seconds = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


def _read_wait_s() -> float:
    """Return the run-queue wait of all threads, from the second number of each `schedstat`."""
    texts = (read_text(task / "schedstat") for task in _TASKS.glob("*"))
    return sum(int(text.split()[1]) for text in texts if text) * _NS


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Causes outside of a system that slowed down its timed passes, as far as they are known.

    Attributes:
        is_throttled: Whether heat or power limited the CPU or the GPU.
        gpu_clocks_mhz: Clock rates of the GPU before and after the passes; None without a GPU.
        gpu_limited_s: Seconds for which its clock rate was limited, by cause; None if not counted.
        gpu_others: Other processes that computed on it before and after; None if unknown.
    """

    is_throttled: bool
    gpu_clocks_mhz: tuple[int | None, int | None] | None = None
    gpu_limited_s: dict[str, float] | None = None
    gpu_others: tuple[int | None, int | None] | None = None

    @property
    def is_gpu_shared(self) -> bool:
        return any(self.gpu_others or ())


class SlowdownWatch:
    """Watch for slowdowns from its creation on.

    Args:
        device: Device of the trial, which the process has already used.
    """

    def __init__(self, device: str) -> None:
        self._n_before = _count_throttles()
        self._gpu = read_gpu() if device == "cuda" else None
        self._n_others = _count_other_processes(self._gpu)

    def stop(self) -> Slowdown:
        is_throttled = _count_throttles() > self._n_before
        before, after = self._gpu, None if self._gpu is None else read_gpu()
        if before is None or after is None:
            return Slowdown(is_throttled)
        limited_s = {
            cause: after.limited_s[cause] - seconds
            for cause, seconds in before.limited_s.items()
            if cause in after.limited_s
        }
        is_limited = before.is_limited or after.is_limited or any(limited_s.values())
        return Slowdown(
            is_throttled or is_limited,
            (before.sm_clock_mhz, after.sm_clock_mhz),
            limited_s or None,
            (self._n_others, _count_other_processes(after)),
        )


def _count_other_processes(gpu: GpuReading | None) -> int | None:
    """Count the processes on a GPU that are not of this process's block.

    All processes of a block descend from one. In a container, the driver may number processes as
    its host does, or report none: then it does not report this process either.
    """
    if gpu is None or gpu.processes is None or os.getpid() not in gpu.processes:
        return None
    first = psutil.Process().parent() or psutil.Process()
    own = {os.getpid(), first.pid, *(child.pid for child in first.children(recursive=True))}
    return len({*gpu.processes} - own)


def _count_throttles() -> int:
    counters = CPUS.glob("cpu*/thermal_throttle/core_throttle_count")
    return sum(int(read_text(counter) or 0) for counter in counters)


def measure_other_cores(watch_s: float) -> float:
    """Measure for a moment how many cores other processes and the hypervisor use."""
    busy_s, own_s, began_s = _read_busy_cpu_s(), _read_own_cpu_s(), time.monotonic()
    time.sleep(watch_s)
    elapsed_s = time.monotonic() - began_s
    if elapsed_s <= 0:
        return 0.0
    others_s = _read_busy_cpu_s() - busy_s - (_read_own_cpu_s() - own_s)
    return max(0.0, others_s / elapsed_s)


def _read_busy_cpu_s() -> float:
    times = psutil.cpu_times()
    # Low-priority work also uses caches and turbo; psutil does not include it in user.
    more = (getattr(times, name, 0.0) for name in ("nice", "irq", "softirq", "steal"))
    return float(times.user + times.system + sum(more))


def _read_own_cpu_s() -> float:
    """Return the CPU seconds of this process and all its descendants, including ended ones."""
    times = apply_to_family(lambda process: process.cpu_times())
    ended = sum(cpu_times.children_user + cpu_times.children_system for cpu_times in times)
    return float(sum(cpu_times.user + cpu_times.system for cpu_times in times) + ended)


LOW_MEMORY = 0.2  # fraction of the machine's memory
WATCH_S = 0.5
SLOW_GOVERNORS = ("powersave", "ondemand", "conservative", "schedutil")
MIB, GIB = 2**20, 2**30
ADVICE = {  # by check, if it finds noise
    "other work": f"more than {BUSY_CORES} cores are in use; stop other processes first",
    "CPU quota": "the container is paused when it exceeds its quota;"
    " give it whole CPUs (a CPU set)",
    "governor": "choose `performance` (cpupower frequency-set)",
    "turbo": "",
    "huge pages": "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    "free memory": "less than 20% is free; stop other processes",
    "swap used": "pages may be swapped in during a measurement; free memory first",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one noise check; `advice` is empty if it passed."""

    name: str
    value: str
    advice: str = ""


def check_noise(machine: Machine, watch_s: float = WATCH_S) -> list[Finding]:
    """Monitor the machine for a moment and return the results of all noise checks.

    Turbo makes the speed depend on heat; it is reported but allowed.
    """
    other_cores = measure_other_cores(watch_s)
    quota, total = machine.cpu_quota, machine.memory_bytes
    quota_text = "none" if quota is None else f"{quota:.2g} cores"
    governor, huge_pages = machine.governor or "unknown", read_huge_pages() or "unknown"
    turbo = {None: "unknown", True: "on", False: "off"}[machine.turbo]
    free = min(psutil.virtual_memory().available, total)  # a container has less than the machine
    swapped = psutil.swap_memory().used
    checks = [
        ("other work", f"{other_cores:.2f} cores", other_cores > BUSY_CORES),
        ("CPU quota", quota_text, quota is not None),
        ("governor", governor, governor in SLOW_GOVERNORS),
        ("turbo", turbo, False),
        ("huge pages", huge_pages, huge_pages == "never"),
        ("free memory", f"{free / GIB:.1f} of {total / GIB:.1f} GiB", free < LOW_MEMORY * total),
        ("swap used", f"{swapped / MIB:.0f} MiB", swapped > MIB),
    ]
    findings = [Finding(name, value, ADVICE[name] * is_noise) for name, value, is_noise in checks]
    return [*findings, judge_gpu(read_gpu())] if machine.gpus else findings


def judge_gpu(gpu: GpuReading | None) -> Finding:
    """Check the number of processes that compute on the GPU, and its clock rate."""
    if gpu is None or gpu.processes is None:
        return Finding("GPU", "unknown to the driver")
    value = f"{len(gpu.processes)} processes"
    if gpu.processes:
        return Finding("GPU", value, "other processes slow it down; stop them first")
    advice = "heat or power limit its clock rate; cool it first" if gpu.is_limited else ""
    return Finding("GPU", value, advice)
