"""What binds a child process to its parent, so that no orphan disturbs later trials."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import psutil

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
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


def end_unless(pid: int) -> None:
    """End this process at once unless it has this number: a fork of it came back from a system.

    It would measure a second time, beside the first, and leave a record of its own.
    """
    if os.getpid() != pid:
        os._exit(FORKED)
