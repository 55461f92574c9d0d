"""Memory of this process and its descendants, its garbage collector, and last words of others."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil

from dynbatch.harness.machine.files import read_lines


def measure_resident_bytes() -> int:
    """Return the current resident memory of this process and its descendants without files.

    Pages of libraries count for no system: a forked process maps them when it first touches them.
    """
    return sum(apply_to_family(lambda process: _read_memory_bytes(process, "VmRSS:")))


def release_memory() -> None:
    """Return freed memory to the operating system, if the C library can.

    Memory that is used afterwards is faulted in again.
    """
    gc.collect()
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak_memory() -> None:
    """Reset the peak memory of this process and its descendants, if the kernel can.

    The memory of checks before the measurement must not count in a trial's peak.
    """
    apply_to_family(_forget_peak)


def measure_peak_bytes() -> int:
    """Return the peak resident memory since the last reset, summed over all running processes.

    This is an upper bound, because the peaks may not coincide and processes share pages. Pages of
    files do not count, as in measure_resident_bytes.
    """
    return sum(apply_to_family(lambda process: _read_memory_bytes(process, "VmHWM:")))


def _forget_peak(process: psutil.Process) -> None:
    with suppress(OSError):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")


def _read_memory_bytes(process: psutil.Process, name: str) -> int:
    """Return an entry of /proc/PID/status less the pages of files; resident bytes without it."""
    lines = [line.split() for line in read_lines(Path(f"/proc/{process.pid}/status"))]
    kilobytes = {words[0]: int(words[1]) for words in lines if words[2:] == ["kB"]}
    if name not in kilobytes:
        return int(process.memory_info().rss)
    return (kilobytes[name] - kilobytes.get("RssFile:", 0)) * 1024


T = TypeVar("T")


def apply_to_family(read: Callable[[psutil.Process], T]) -> list[T]:
    """Apply a function to this process and its descendants, except those that end meanwhile."""
    own = psutil.Process()
    values = [read(own)]
    for process in own.children(recursive=True):
        try:
            values.append(read(process))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return values


@contextmanager
def freeze_new_objects() -> Iterator[None]:
    """Exclude all objects created in the block from garbage collection.

    This is meant for modules and inputs, which live as long as the process. With 150,000 objects of
    a framework, each collection takes 0.1 s, and creating them triggers half a dozen.
    """
    with disable_collector():
        try:
            yield
        finally:
            gc.freeze()


@contextmanager
def disable_collector() -> Iterator[None]:
    """Disable garbage collection in the block; nearly all objects of a compiler stay in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_TRACEBACK = "Traceback (most recent call last):"
_SHOWN = 500  # characters of a process's last output in messages
_LEFT_OUT = " ... "


def find_last_words(output: str) -> str:
    """Return the last output of a process in one short line; empty if it printed nothing.

    After a traceback this starts at the type of the exception, because the last line of a long
    message is not informative.
    """
    lines = [line for line in output.split("\n") if line.strip()]
    begins = [index for index, line in enumerate(lines) if line.rstrip() == _TRACEBACK]
    below = range(begins[-1] + 1, len(lines)) if begins else ()
    first = next((index for index in below if not lines[index].startswith(" ")), -1)
    text = " ".join(" ".join(lines[first:]).split())
    if len(text) <= _SHOWN:
        return text
    half = (_SHOWN - len(_LEFT_OUT)) // 2
    return f"{text[:half]}{_LEFT_OUT}{text[-half:]}"
