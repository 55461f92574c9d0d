"""What the parents of measuring processes share: limits, ends, and their reasons in one line."""

from __future__ import annotations

import signal
from collections.abc import Iterable

import psutil

from harness.trials.spec import Limits

LEFT_OUT = "BENCH_LEFT_OUT"  # names the variables that a worker does not see
POLL_S = 0.25  # between looks at a child's memory; costs well below 0.1 % of a core
MEMORY_SHARE = 0.8  # of the machine's, where no limit is given

_OUT_OF_MEMORY = (
    *("out of memory", "bad_alloc", "cannot allocate memory", "can't allocate memory"),
    *("memoryerror", "unable to allocate", "oom when allocating", "resource_exhausted"),
    *("outofmemory", "cudaerrormemoryallocation", "alloc_failed"),  # of CUDA and its libraries
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, tells that memory ran out, in Python or below it."""
    if error is None:
        return False
    tells = isinstance(error, MemoryError) or tells_of_memory(f"{type(error).__name__} {error}")
    return tells or is_out_of_memory(error.__cause__)


def tells_of_memory(words: str) -> bool:
    """Whether a process's last words say that memory ran out."""
    return any(sign in words.lower() for sign in _OUT_OF_MEMORY)


def memory_limit_bytes(limits: Limits) -> int:
    """The memory limit, by default four fifths of the machine's memory."""
    return limits.memory_bytes or int(MEMORY_SHARE * psutil.virtual_memory().total)


def memory_excess(processes: Iterable[psutil.Process], limits: Limits) -> str | None:
    """The reason to end processes for the memory of all of them, None where there is none."""
    used, allowed = sum(map(_resident_bytes, processes)), memory_limit_bytes(limits)
    if used <= allowed:
        return None
    return f"used {used / 2**20:.0f} MiB, limits.memory_bytes is {allowed}"


def timeout_reason(limits: Limits) -> str:
    """The reason to end a process for its time."""
    return f"not done within limits.time_s={limits.time_s:g}"


def death_reason(returncode: int, last_line: str = "") -> str:
    """Why a child ended that left no result: its last line, or the signal that ended it."""
    if returncode >= 0:
        return last_line or f"exit code {returncode}"
    name = _signal_words(-returncode)
    hint = " (by a person, or by the kernel for lack of memory)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}" + (f"; last line: {last_line}" if last_line else "")


def _signal_words(number: int) -> str:
    """A signal's name; of most real-time signals Python knows none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number} (SIGRTMIN+{number - signal.SIGRTMIN})"


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
