"""The memory of this process and of those below it, and its peak."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from harness.machine.family import of_family
from harness.machine.system_files import read_lines


def resident_memory_bytes() -> int:
    """Resident memory now, of this process and of those below it."""
    return sum(of_family(lambda process: int(process.memory_info().rss)))


def give_back_memory() -> None:
    """Give freed memory back, where the C library can: what is used next is faulted in anew."""
    gc.collect()
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def forget_peak_memory() -> None:
    """Let the kernel forget peaks of all processes, where it can.

    What the check before the measurement needed is no part of a trial's peak.
    """
    of_family(_forget_peak)


def peak_memory_bytes() -> int:
    """Peak resident memory since it was last forgotten, the sum of those of all living processes.

    They need not have had it at one time, and share pages: it is no less than what was needed.
    """
    return sum(of_family(_peak_bytes))


def _forget_peak(process: psutil.Process) -> None:
    with suppress(OSError):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes(process: psutil.Process) -> int:
    for line in read_lines(Path(f"/proc/{process.pid}/status")):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)
