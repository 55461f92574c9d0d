"""Entry point of a child process: binds it to its parent, and reports refusals.

    python -m dynbatch.harness.measuring.processes.child PARENT_PID MODULE ARGUMENT...

MODULE is imported once the process is bound to its parent. Its `main` takes the arguments and
returns the exit code. Importing the worker takes half a second, in which its parent may be killed;
therefore this module imports nothing heavy.

A worker that refuses a trial writes the reason to a file next to the spec and exits with REFUSED.
The exit code is not sufficient evidence, because any code that runs in the worker may exit with it.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.process import freeze_new_objects

REFUSED = 64  # exit code of a worker that refuses its trial (EX_USAGE of sysexits)
FORKED = 70  # exit code of a fork that returned from a system's code
LEFT_OUT = "BENCH_LEFT_OUT"  # lists the variables removed from a worker's environment
START = "BENCH_START"  # how a worker has started: one of the two following
IMPORTED, FROM_SERVER = "imports of its own", "forked after its imports"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PID = os.getpid()  # of the process that measures
_OUT_OF_MEMORY = (
    *("out of memory", "bad_alloc", "cannot allocate memory", "can't allocate memory"),
    *("memoryerror", "unable to allocate", "oom when allocating", "resource_exhausted"),
    *("outofmemory", "cudaerrormemoryallocation", "alloc_failed"),  # of CUDA and its libraries
)


def main(arguments: Sequence[str]) -> int:
    """Run `main` of the given module as a child of the given process; return its exit code."""
    parent_pid, module, *others = arguments
    bind_to_parent(int(parent_pid))
    with freeze_new_objects():
        become = importlib.import_module(module).main
    return int(become(others))


def exit_process(code: int) -> NoReturn:
    """Exit as Python does, but without destroying objects.

    Freeing the objects of a framework one by one takes up to half a second.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for non-daemon threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)  # output that C libraries have buffered
    os._exit(code)


def bind_to_parent(parent_pid: int) -> None:
    """Let Linux kill this process when its parent ends; end it now if the parent has ended.

    Args:
        parent_pid: Process that started this one, directly or through a script.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    # Checked after the request: Linux sends no signal for a parent that ended before it.
    if os.getppid() != parent_pid and all(
        process.pid != parent_pid for process in psutil.Process().parents()
    ):
        os.kill(os.getpid(), signal.SIGKILL)


def end_fork() -> None:
    """Exit immediately if this process is a fork that returned from a system's code.

    It would measure a second time, concurrently with the first, and write a second record.
    """
    if os.getpid() != _PID:
        os._exit(FORKED)


def claim_process() -> None:
    """Make this process, which has been forked, the one that measures; see `end_fork`."""
    global _PID
    _PID = os.getpid()


def refuse(spec_path: Path, error: BenchError) -> int:
    """Report an error to the parent and to the log; return the exit code.

    On a full disk the file is truncated, which read_refusal reports.
    """
    line = " ".join(str(error).split())
    print(line, file=sys.stderr)
    refusal = {"error": type(error).__name__, "line": line}
    with suppress(OSError):
        locate_refusal(spec_path).write_text(json.dumps(refusal), encoding="utf-8")
    return REFUSED


def locate_refusal(spec_path: Path) -> Path:
    return spec_path.with_name("refusal.json")


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error or its cause means that memory ran out, in Python or a library."""
    if error is None:
        return False
    tells = isinstance(error, MemoryError) or has_memory_error(f"{type(error).__name__} {error}")
    return tells or is_out_of_memory(error.__cause__)


def has_memory_error(text: str) -> bool:
    """Return whether a process's last output reports that memory ran out."""
    return any(sign in text.lower() for sign in _OUT_OF_MEMORY)


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
