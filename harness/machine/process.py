"""Memory of this process and of all below it, and its garbage collector."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil

from harness.machine.files import read_lines


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


T = TypeVar("T")


def of_family(read: Callable[[psutil.Process], T]) -> list[T]:
    """Read something of every process; those that end meanwhile are left out."""
    own = psutil.Process()
    found = [read(own)]
    for process in own.children(recursive=True):
        try:
            found.append(read(process))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@contextmanager
def made_to_stay() -> Iterator[None]:
    """Let whatever is made in the block stay: the collector looks at it neither now nor later.

    For modules and inputs, which live as long as the process. Among 150 000 objects of a framework
    the collector looks for 0.1 s whenever it is asked, and half a dozen times while they are made.
    """
    with collector_resting():
        try:
            yield
        finally:
            gc.freeze()


@contextmanager
def collector_resting() -> Iterator[None]:
    """Keep the collector from the block alone: what a compiler makes is nearly all in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
