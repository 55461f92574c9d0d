"""All that a child process starts, and its end: also what left its group, session and parents."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import psutil

_SET_ADOPTS, _GET_ADOPTS = 36, 37  # PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER
_PATIENCE_S = 10.0  # with what a device holds and no signal ends
Members = Callable[[], list[psutil.Process]]


@contextmanager
def household() -> Iterator[Members]:
    """End with the block whatever was started below this process in it.

    Gives what tells the processes of the moment. Linux hands those whose parents ended to this
    process, however they detached themselves; elsewhere such are not found.
    """
    before = _descendants()
    with _adopting_orphans():
        try:
            yield lambda: list(_descendants() - before)
        finally:
            _end_all(lambda: _descendants() - before)


def mark(word: str) -> str:
    """What `end_marked` knows those by that this process starts: the word, and whose they are."""
    return f"{word}:{os.getpid()}"


def end_marked(variable: str, word: str) -> int:
    """End this user's processes in whose environment a variable has a mark of the word.

    Returns how many there were. Left alone are this process, what it was started by, and whatever
    was marked by a process that still lives.
    """
    spared = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    found = {
        process
        for process in psutil.process_iter()
        if process.pid not in spared and _is_left(process, variable, word)
    }
    _end_all(lambda: {process for process in found if process.is_running()})
    return len(found)


def _is_left(process: psutil.Process, variable: str, word: str) -> bool:
    try:
        if process.uids().real != os.getuid():
            return False
        marks = [one.partition(":") for one in process.environ().get(variable, "").split()]
        owners = [int(pid) for found, _, pid in marks if found == word and pid.isdecimal()]
        return bool(owners) and not any(_lives(owner, process) for owner in owners)
    except (psutil.Error, OSError):  # it has ended, or nobody may look
        return False


def _lives(owner_pid: int, started: psutil.Process) -> bool:
    """Whether what marked a process still runs; this process itself begins anew."""
    if owner_pid == os.getpid():
        return False
    try:
        owner = psutil.Process(owner_pid)
        is_older = owner.create_time() <= started.create_time()  # else the number is another's
        return is_older and owner.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _end_all(members: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill until there is none: one that is killed may just have started another."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := list(members())) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_GET_ADOPTS, ctypes.byref(before))
    prctl(_SET_ADOPTS, 1)
    try:
        yield
    finally:
        prctl(_SET_ADOPTS, before.value)
