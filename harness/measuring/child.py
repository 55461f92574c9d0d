"""The first module of a child process: bound to its parent before anything that takes time.

    python -m harness.measuring.child PARENT_PID MODULE ARGUMENT...

MODULE is imported then, and its `main` gets the arguments and gives the exit code. Importing the
worker takes half a second, in which its parent may be killed.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

import psutil

from harness.machine.process import made_to_stay


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


_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PID = os.getpid()  # of the process that loaded this module
FORKED = 70  # exit code of a fork that came back


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


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
