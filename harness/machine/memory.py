"""The memory of this process, and its peak."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import psutil

from harness.machine.system_files import read_lines


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
    for line in read_lines(Path("/proc/self/status")):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resident_memory_bytes()
