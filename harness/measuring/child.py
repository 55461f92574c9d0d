"""The child's side of a measuring process: bound to its parent, it says, refuses and ends.

    python -m harness.measuring.child PARENT_PID MODULE ARGUMENT...

MODULE is imported once the process is bound, and its `main` gets the arguments and gives the exit
code. Importing the worker takes half a second, in which its parent may be killed: nothing heavy is
imported here.

A worker that will not go on says why in a file of its own beside the spec, and ends with REFUSED.
The exit code alone is not believed, since whatever runs in the worker may end it with any.
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

from harness.errors import BenchError
from harness.machine.process import made_to_stay

REFUSED = 64  # exit code of a worker that will not go on (EX_USAGE of sysexits)
FORKED = 70  # exit code of a fork that came back
SAID = "now: "  # what begins a line that the parent passes on at once
LEFT_OUT = "BENCH_LEFT_OUT"  # names the variables that a worker does not see
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PID = os.getpid()  # of the process that loaded this module
_OUT_OF_MEMORY = (
    *("out of memory", "bad_alloc", "cannot allocate memory", "can't allocate memory"),
    *("memoryerror", "unable to allocate", "oom when allocating", "resource_exhausted"),
    *("outofmemory", "cudaerrormemoryallocation", "alloc_failed"),  # of CUDA and its libraries
)


def main(arguments: Sequence[str]) -> int:
    """Become the module that is named, as a child of the process that is named."""
    parent_pid, module, *others = arguments
    die_with_parent(int(parent_pid))
    with made_to_stay():
        become = importlib.import_module(module).main
    return int(become(others))


def leave(code: int) -> NoReturn:
    """End with an exit code as Python does, but take nothing apart.

    That would free the objects of a framework one by one, for up to half a second.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)  # what libraries have printed
    os._exit(code)


def die_with_parent(parent_pid: int) -> None:
    """Have Linux end this process with its parent, or end it now where the parent has ended.

    parent_pid: of the process that started this one, itself or through a script.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    # Looked at after asking: of a parent that ended before, Linux tells nobody.
    if os.getppid() != parent_pid and parent_pid not in _ancestors():
        os.kill(os.getpid(), signal.SIGKILL)


def _ancestors() -> set[int]:
    return {process.pid for process in psutil.Process().parents()}


def end_fork() -> None:
    """End this process at once if it is a fork that came back from a system.

    It would measure a second time, beside the first, and leave a record of its own.
    """
    if os.getpid() != _PID:
        os._exit(FORKED)


def say(words: str) -> None:
    """Print a line that the parent passes on while this process is at work."""
    print(SAID + " ".join(words.split()), flush=True)


def refuse(spec_path: Path, error: BenchError) -> int:
    """Tell the parent, and whoever reads the log, why; return the exit code.

    On a full disk the file is cut off, which read_refusal tells.
    """
    line = " ".join(str(error).split())
    print(line, file=sys.stderr)
    refusal = {"error": type(error).__name__, "line": line}
    with suppress(OSError):
        refusal_path(spec_path).write_text(json.dumps(refusal), encoding="utf-8")
    return REFUSED


def refusal_path(spec_path: Path) -> Path:
    """Return where a worker leaves what it refuses."""
    return spec_path.with_name("refusal.json")


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, tells that memory ran out, in Python or below it."""
    if error is None:
        return False
    tells = isinstance(error, MemoryError) or tells_of_memory(f"{type(error).__name__} {error}")
    return tells or is_out_of_memory(error.__cause__)


def tells_of_memory(words: str) -> bool:
    """Whether a process's last words say that memory ran out."""
    return any(sign in words.lower() for sign in _OUT_OF_MEMORY)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
