"""What the parents of measuring processes share: limits, ends, and their reasons in one line."""

from __future__ import annotations

import ctypes
import signal
import sys

import psutil

from harness.trials.spec import Limits

LEFT_OUT = "BENCH_LEFT_OUT"  # names the variables that a worker does not see
POLL_S = 0.25  # between looks at a child's memory; costs well below 0.1 % of a core
MEMORY_SHARE = 0.8  # of the machine's, where no limit is given

_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "cannot allocate memory", "can't allocate memory")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def die_with_parent() -> None:
    """Have Linux end this process with its parent, so that no orphan disturbs later trials."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error tells that memory ran out, in Python or below it."""
    text = f"{type(error).__name__} {error}".lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY)


def memory_limit_bytes(limits: Limits) -> int:
    """The memory limit, by default four fifths of the machine's memory."""
    return limits.memory_bytes or int(MEMORY_SHARE * psutil.virtual_memory().total)


def memory_excess(pid: int, limits: Limits) -> str | None:
    """The reason to end a process and its children for their memory, None where there is none."""
    used, allowed = _tree_memory_bytes(pid), memory_limit_bytes(limits)
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
    name = signal.Signals(-returncode).name
    hint = " (by a person, or by the kernel for lack of memory)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}" + (f"; last line: {last_line}" if last_line else "")


def _tree_memory_bytes(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_resident_bytes(member) for member in family)


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
