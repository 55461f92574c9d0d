"""Facts about this machine and its NVIDIA GPUs that decide which records are comparable."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pynvml

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.cgroup import read_cpu_quota, read_memory_limit
from dynbatch.harness.machine.files import read_lines, read_text

T = TypeVar("T")
CPUS = Path("/sys/devices/system/cpu")
CPU_INFO = Path("/proc/cpuinfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# Lines of /proc/cpuinfo that name a processor and its instructions, on x86 and on Arm.
_INSTRUCTIONS = ("model name", "flags", "CPU part", "Features")


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about a machine that decide which records are comparable."""

    hostname: str
    cpu: str
    n_cores: int  # physical
    n_cpus: int  # logical
    usable_cpus: tuple[int, ...]  # affinity of this process
    memory_bytes: int  # of the machine, or the container's limit
    os: str
    governor: str | None
    turbo: bool | None
    gpus: tuple[Gpu, ...]
    cpu_quota: float | None = None  # cores that the container may use; None: all usable CPUs

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the record, as JSON has them (lists instead of tuples)."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def read_huge_pages() -> str | None:
    """Return when memory is in huge pages: always, madvise (on request) or never; None: unknown."""
    chosen = re.search(r"\[(\w+)\]", read_text(HUGE_PAGES) or "")
    return None if chosen is None else chosen[1]


def describe_machine() -> Machine:
    """Collect the facts about this machine, in milliseconds and without starting a program."""
    n_cpus = psutil.cpu_count() or 1
    return Machine(
        hostname=platform.node(),
        cpu=read_cpu_model(),
        n_cores=psutil.cpu_count(logical=False) or n_cpus,
        n_cpus=n_cpus,
        usable_cpus=list_usable_cpus(),
        memory_bytes=read_memory_bytes(),
        os=f"{platform.system()} {platform.release()}",
        governor=read_text(CPUS / "cpu0/cpufreq/scaling_governor"),
        turbo=_read_turbo(),
        gpus=describe_gpus(),
        cpu_quota=read_cpu_quota(),
    )


def read_memory_bytes() -> int:
    """Return the memory of this machine, or of the container if that is less."""
    total: int = psutil.virtual_memory().total
    return min(total, read_memory_limit() or total)


def count_usable_cpus() -> int:
    """Return how many threads can run at once: usable CPUs, but no more than the quota allows."""
    quota = read_cpu_quota()
    n_cpus = len(list_usable_cpus())
    return n_cpus if quota is None else min(n_cpus, max(1, math.ceil(quota)))


def list_usable_cpus() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(psutil.cpu_count() or 1))


def pin_process(cpus: Collection[int]) -> None:
    """Restrict this process, and processes that it starts, to logical CPUs.

    Raises:
        ConfigError: One of them is not usable, or the operating system has no such restriction.
    """
    usable = list_usable_cpus()
    if not set(cpus) <= set(usable):
        raise ConfigError(
            f"cpu={min(cpus)} is not allowed: expected {len(cpus)} of the usable CPUs"
            f" {', '.join(map(str, usable))} in a row; set another, or fewer threads"
        )
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("cpu is not available on this operating system; remove it")
    os.sched_setaffinity(0, cpus)


def read_cpu_model() -> str:
    """Return the processor's name.

    Virtual machines may hide its number ("AMD EPYC"): family and model, as the processor reports
    them, then distinguish its generations.
    """
    first: dict[str, str] = {}
    for line in read_lines(CPU_INFO):
        key, _, value = line.partition(":")
        first.setdefault(key.strip(), value.strip())
    name = first.get("model name")
    if name is None:
        return platform.processor() or platform.machine()
    if any(map(str.isdigit, name)) or "model" not in first:
        return name
    return f"{name} (family {first.get('cpu family')}, model {first['model']})"


def hash_cpu() -> str:
    """Hash the processor's name and, on Linux, its instructions, for keys of cached machine code.

    Home directories are shared by machines with different processors: code for one may be an
    illegal instruction on another.
    """
    lines = {line for line in read_lines(CPU_INFO) if line.startswith(_INSTRUCTIONS)}
    facts = [platform.machine(), *sorted(lines or {platform.processor()})]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _read_turbo() -> bool | None:
    no_turbo = read_text(CPUS / "intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == "0"
    boost = read_text(CPUS / "cpufreq/boost")
    return None if boost is None else boost == "1"


@dataclass(frozen=True, slots=True)
class Gpu:
    """NVIDIA GPU as its driver reports it; facts that it does not report are None."""

    name: str
    memory_bytes: int | None
    driver: str
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None


def has_cuda_device() -> bool:
    """Return whether an NVIDIA device is present and visible, without loading a framework."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    return Path("/dev/nvidia0").exists() or bool(describe_gpus())


def describe_gpus() -> tuple[Gpu, ...]:
    """List the NVIDIA GPUs; empty without a driver."""
    try:
        with _open_driver():
            return tuple(_describe_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()


def find_used_gpu() -> str | None:
    """Return model and UUID of the GPU that CUDA programs use by default; None if there is none."""
    try:
        with _open_default_gpu() as handle:
            return f"{pynvml.nvmlDeviceGetName(handle)}, {pynvml.nvmlDeviceGetUUID(handle)}"
    except pynvml.NVMLError:
        return None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """State of the GPU that CUDA programs use by default, at one moment.

    Attributes:
        sm_clock_mhz: Clock rate; None if the driver does not report it.
        is_limited: Whether heat or power limit the clock rate.
        limited_s: Seconds for which they have done so since the driver was loaded, by cause; only
            of causes that the driver counts.
        processes: Processes that compute on it, as the driver numbers them; None if unknown.
    """

    sm_clock_mhz: int | None
    is_limited: bool
    limited_s: dict[str, float]
    processes: tuple[int, ...] | None


_LIMITS = {
    "power": pynvml.NVML_PERF_POLICY_POWER,
    "heat": pynvml.NVML_PERF_POLICY_THERMAL,
    "board": pynvml.NVML_PERF_POLICY_BOARD_LIMIT,
}
_LIMITED = (
    pynvml.nvmlClocksThrottleReasonHwSlowdown
    | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonSwPowerCap
)


def read_gpu() -> GpuReading | None:
    """Read the state of the default GPU; None if there is none."""
    try:
        with _open_default_gpu() as handle:
            return _read_gpu(handle)
    except pynvml.NVMLError:
        return None


def _read_gpu(handle: Any) -> GpuReading:
    clock = _ask_driver(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)))
    flags = _ask_driver(lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
    limited_ns = {
        cause: _ask_driver(partial(_read_limited_ns, handle, policy))
        for cause, policy in _LIMITS.items()
    }
    running = _ask_driver(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return GpuReading(
        sm_clock_mhz=clock,
        is_limited=bool((flags or 0) & _LIMITED),
        limited_s={cause: 1e-9 * ns for cause, ns in limited_ns.items() if ns is not None},
        processes=None if running is None else tuple(sorted(process.pid for process in running)),
    )


def measure_own_gpu_bytes() -> int | None:
    """Return the memory of this process on the default GPU; None if the driver does not report it.

    In a container, it may number processes as its host does.
    """
    try:
        with _open_default_gpu() as handle:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return None
    return next((item.usedGpuMemory for item in running if item.pid == os.getpid()), None)


def _read_limited_ns(handle: Any, policy: int) -> int:
    return int(pynvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime)


def describe_driver() -> tuple[str, tuple[int, int]] | None:
    """Return the version of NVIDIA's driver, and the newest CUDA for which it is; None without."""
    try:
        with _open_driver():
            version = str(pynvml.nvmlSystemGetDriverVersion())
            cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())  # 12080: 12.8
    except pynvml.NVMLError:
        return None
    return version, (cuda // 1000, cuda % 1000 // 10)


@contextmanager
def _open_driver() -> Iterator[None]:
    """Load the driver's library; a pynvml.NVMLError says that there is none."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def _open_default_gpu() -> Iterator[Any]:
    """Yield the driver's handle of the GPU that CUDA programs use by default.

    The driver's numbering equals CUDA's if CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Raises:
        pynvml.NVMLError: There is none.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    with _open_driver():
        if chosen.isdecimal():
            yield pynvml.nvmlDeviceGetHandleByIndex(int(chosen))
        else:
            yield pynvml.nvmlDeviceGetHandleByUUID(chosen)


def _ask_driver(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _describe_gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    clock = pynvml.NVML_CLOCK_SM
    return Gpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=_ask_driver(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)),
        driver=str(pynvml.nvmlSystemGetDriverVersion()),
        sm_clock_mhz=_ask_driver(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, clock))),
        max_sm_clock_mhz=_ask_driver(lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, clock))),
    )
