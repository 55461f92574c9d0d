"""Share of the machine that the kernel gives to this process's container (cgroup v1 and v2).

A container under a CPU quota sees all CPUs of the machine, but is paused for the rest of each
period in which it has used up its quota. A limit applies to a control group and to those below it,
so the tightest one on the way up counts.

Source: Linux kernel documentation, admin-guide/cgroup-v2 and scheduler/sched-bwc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dynbatch.harness.machine.files import read_lines, read_text

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")  # lines ID:CONTROLLERS:PATH; of version 2, 0::PATH
NO_LIMIT_BYTES = 2**62  # version 1 has the largest multiple of a page as "no limit"


def read_cpu_quota() -> float | None:
    """Return the CPU time per second that this process may use, in cores; None: all."""
    quotas = [quota for folder in _list_folders("cpu") if (quota := _read_quota(folder))]
    return min(quotas, default=None)


def count_throttled_periods() -> int:
    """Return the number of periods in which the quota paused this process or others with it."""
    counts = []
    for folder in _list_folders("cpu"):
        facts = dict(line.split() for line in read_lines(folder / "cpu.stat"))
        counts.append(int(facts.get("nr_throttled", 0)))
    return max(counts, default=0)


def read_memory_limit() -> int | None:
    """Return the bytes that this process's container may use; None: all of the machine's."""
    limits = []
    for folder in _list_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = read_text(folder / name) or ""
            if text.isdecimal() and int(text) < NO_LIMIT_BYTES:
                limits.append(int(text))
    return min(limits, default=None)


def _read_quota(folder: Path) -> float | None:
    text = read_text(folder / "cpu.max")  # "40000 100000" or "max 100000", in microseconds
    if text is None:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        text = " ".join(read_text(folder / name) or "" for name in names)
    match = re.fullmatch(r"(\d+) (\d+)", text)  # without a limit, "max" or -1
    return int(match[1]) / int(match[2]) if match and int(match[2]) else None


def _list_folders(controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control group and of those above it.

    In a container, the path may be that outside, whose last parts do not exist inside.
    """
    for line in read_lines(OWN):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            hierarchies = [ROOT, ROOT / "unified"]
        elif controller in controllers.split(","):
            hierarchies = [ROOT / controllers, ROOT / controller]
        else:
            continue
        for hierarchy in dict.fromkeys(hierarchies):
            group = hierarchy / path.strip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(hierarchy) and folder.is_dir():
                    yield folder
