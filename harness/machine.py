"""What the machine is, and how disturbed it is while a trial is measured."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pynvml

BUSY_CORES = 0.5  # more than this many cores used by others spoils a measurement

_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU as its driver reports it; what the driver does not tell is None."""

    name: str
    memory_bytes: int | None
    driver: str
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of a machine that decide which records may be compared."""

    hostname: str
    cpu: str
    n_cores: int  # physical
    n_cpus: int  # logical
    usable_cpus: tuple[int, ...]  # affinity of this process
    memory_bytes: int
    os: str
    governor: str | None
    turbo: bool | None
    gpus: tuple[Gpu, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values as JSON has them (lists, no tuples), for the record."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def describe_machine() -> Machine:
    """Look the machine up; costs milliseconds and starts no other program."""
    n_cpus = psutil.cpu_count() or 1
    return Machine(
        hostname=platform.node(),
        cpu=cpu_model(),
        n_cores=psutil.cpu_count(logical=False) or n_cpus,
        n_cpus=n_cpus,
        usable_cpus=usable_cpus(),
        memory_bytes=psutil.virtual_memory().total,
        os=f"{platform.system()} {platform.release()}",
        governor=_read(_CPUS / "cpu0/cpufreq/scaling_governor"),
        turbo=_turbo(),
        gpus=describe_gpus(),
    )


def usable_cpus() -> tuple[int, ...]:
    """Logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(psutil.cpu_count() or 1))


def has_cuda_device() -> bool:
    """Return whether an NVIDIA device is there and visible, without loading any framework."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    return Path("/dev/nvidia0").exists() or bool(describe_gpus())


def describe_gpus() -> tuple[Gpu, ...]:
    """List the NVIDIA GPUs; empty where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _told(ask: Callable[[], int]) -> int | None:
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    clock = pynvml.NVML_CLOCK_SM
    return Gpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=_told(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)),
        driver=str(pynvml.nvmlSystemGetDriverVersion()),
        sm_clock_mhz=_told(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, clock))),
        max_sm_clock_mhz=_told(lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, clock))),
    )


def gpu_is_throttled() -> bool:
    """Return whether the first GPU runs slower because of heat or power."""
    reasons = (
        pynvml.nvmlClocksThrottleReasonHwSlowdown
        | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | pynvml.nvmlClocksThrottleReasonSwPowerCap
    )
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return bool(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & reasons)
    except pynvml.NVMLError:
        return False


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


def resident_memory_bytes() -> int:
    """Resident memory of this process now."""
    return int(psutil.Process().memory_info().rss)


def reset_peak_memory() -> None:
    """Give freed memory back, and let the kernel forget this process's peak, where it can.

    What the check before the measurement needed is no part of a trial's peak.
    """
    gc.collect()
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_memory_bytes() -> int:
    """Peak resident memory of this process since the last reset."""
    for line in _lines(Path("/proc/self/status")):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resident_memory_bytes()


def _busy_cpu_seconds() -> float:
    times = psutil.cpu_times()
    steal = getattr(times, "steal", 0.0)
    return float(times.user + times.system + getattr(times, "irq", 0.0) + steal)


def _own_cpu_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def _throttle_count() -> int:
    counters = _CPUS.glob("cpu*/thermal_throttle/core_throttle_count")
    return sum(int(_read(counter) or 0) for counter in counters)


def cpu_model() -> str:
    """Name the processor."""
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _turbo() -> bool | None:
    no_turbo = _read(_CPUS / "intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == "0"
    boost = _read(_CPUS / "cpufreq/boost")
    return None if boost is None else boost == "1"


def _lines(path: Path) -> list[str]:
    text = _read(path)
    return text.splitlines() if text else []


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
