"""What the machine is: the facts that decide which records may be compared."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.machine.gpus import Gpu, describe_gpus
from harness.machine.system_files import CPUS, read_lines, read_text

# Lines of /proc/cpuinfo that name a processor and its instructions, on x86 and on Arm.
_INSTRUCTIONS = ("model name", "flags", "CPU part", "Features")


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
        governor=read_text(CPUS / "cpu0/cpufreq/scaling_governor"),
        turbo=_turbo(),
        gpus=describe_gpus(),
    )


def usable_cpus() -> tuple[int, ...]:
    """Logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(psutil.cpu_count() or 1))


def cpu_model() -> str:
    """Name the processor."""
    for line in read_lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cpu_fingerprint() -> str:
    """Hash the processor's name and, on Linux, its instructions, for keys of cached machine code.

    Home directories are shared by machines with different processors: code for one may be an
    illegal instruction on another.
    """
    lines = {line for line in read_lines(Path("/proc/cpuinfo")) if line.startswith(_INSTRUCTIONS)}
    facts = [platform.machine(), *sorted(lines or {platform.processor()})]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _turbo() -> bool | None:
    no_turbo = read_text(CPUS / "intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == "0"
    boost = read_text(CPUS / "cpufreq/boost")
    return None if boost is None else boost == "1"
