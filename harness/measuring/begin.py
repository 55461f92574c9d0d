"""The first module of a child process: bound to its parent before anything that takes time.

    python -m harness.measuring.begin PARENT_PID MODULE ARGUMENT...

MODULE is imported then, and its `main` gets the arguments and gives the exit code. Importing the
worker takes half a second, in which its parent may be killed.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from harness.machine.collector import made_to_stay
from harness.machine.lifeline import die_with_parent


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


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
