"""Programs in processes of their own, time limits, and the memory of this process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dynbatch.harness.values.paths import ROOT


def end_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python to its end; tests/__init__.py lets it find all modules of the repository."""
    command = [sys.executable, *arguments]
    changed = os.environ | environment
    return subprocess.run(command, env=changed, cwd=ROOT, capture_output=True, text=True)


def run_python(*arguments: str, **environment: str) -> str:
    """Do the same for a program that must succeed, and return what it prints."""
    done = end_python(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_in(
    folder: Path,
    command: list[str],
    environment: Mapping[str, str],
    returncode: int = 0,
    timeout_s: float = 600.0,
) -> str:
    """Run a command in a directory, check its exit code, and return what it prints."""
    joined = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=folder, env=environment, timeout=timeout_s, **joined)
    assert done.returncode == returncode, f"{command}\n{done.stdout}"
    return done.stdout


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that takes longer, also during a blocking system call."""

    def end(*_: object) -> None:
        raise TimeoutError(f"not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wait_until(
    happened: Callable[[], object],
    seconds: float = 60.0,
    process: subprocess.Popen[bytes] | None = None,
) -> bool:
    """Wait for an event, the end of a process or the time limit; return whether it happened."""
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until and (not process or process.poll() is None):
        time.sleep(0.02)
    return bool(happened())


class _GivenOut(ctypes.Structure):
    """The struct mallinfo2 of the GNU C library."""

    _fields_ = [(f"n{k}", ctypes.c_size_t) for k in range(10)]


def count_given_out() -> int:
    """Return the bytes that the C library has allocated, also for compiled functions; or 0."""
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:
        return 0
    tell.restype = _GivenOut
    found = tell()
    return int(found.n4 + found.n7)  # hblkhd (large blocks) and uordblks (others)
