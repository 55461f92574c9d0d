"""Process trees: descendants that end with their context, and those left by killed runs."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import psutil

_SET_ADOPTS, _GET_ADOPTS = 36, 37  # PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER
_PATIENCE_S = 10.0  # wait for processes that are blocked by a device and ignore signals
WORKER_MARK = "BENCH_WORKER"  # environment variable of the processes of one worker
MARK = "BENCH_TURN"  # environment variable of all processes started under locks: locks and owners
Members = Callable[[], list[psutil.Process]]


@contextmanager
def contain_descendants() -> Iterator[Members]:
    """End all descendants of this process that were started in the block when it ends.

    Yields a function that returns the current ones. Linux makes this process the parent of orphans,
    even of detached ones; on other systems orphans are not found.
    """
    before = _list_descendants()
    with _adopt_orphans():
        try:
            yield lambda: list(_list_descendants() - before)
        finally:
            _end_all(lambda: _list_descendants() - before)


def end_strays(workers: Mapping[int, str], members: Iterable[psutil.Process]) -> None:
    """End processes that have no running worker: as ancestor, by their group, or by their mark.

    A process that has left its worker's tree, group and environment has no owner. Linux shows
    the environment with which a program was started, which for a forked worker is its server's.

    Args:
        workers: Values of WORKER_MARK of the workers that are still running, by process id.
        members: Descendants of this process.
    """
    marks = set(workers.values())
    for process in members:
        with suppress(psutil.Error, OSError):
            is_owned = os.getsid(process.pid) in workers
            is_owned = is_owned or any(parent.pid in workers for parent in process.parents())
            if not is_owned and process.environ().get(WORKER_MARK) not in marks:
                process.kill()


@contextmanager
def mark_processes(word: str) -> Iterator[None]:
    """Mark the processes that are started in the block, so that `end_marked` finds them.

    A mark has the word and the process id of the owner, which is this process.
    """
    before = os.environ.get(MARK)
    os.environ[MARK] = " ".join(filter(None, (before, f"{word}:{os.getpid()}")))
    try:
        yield
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before


def end_marked(word: str) -> None:
    """End this user's processes that carry a mark of the word in MARK.

    This process, its ancestors and descendants, and processes whose owner is still running are
    spared.
    """
    own = psutil.Process()
    family = (*own.parents(), *own.children(recursive=True))
    spared = {own.pid, *(process.pid for process in family)}
    processes = {
        process
        for process in psutil.process_iter()
        if process.pid not in spared and _is_left(process, word)
    }
    _end_all(lambda: {process for process in processes if process.is_running()})


def _is_left(process: psutil.Process, word: str) -> bool:
    try:
        if process.uids().real != os.getuid():
            return False
        marks = [entry.partition(":") for entry in process.environ().get(MARK, "").split()]
        owners = [int(pid) for name, _, pid in marks if name == word and pid.isdecimal()]
        return bool(owners) and not any(_is_owner_alive(owner, process) for owner in owners)
    except (psutil.Error, OSError):  # it has ended, or access is denied
        return False


def _is_owner_alive(owner_pid: int, started: psutil.Process) -> bool:
    """Return whether the owner of a process is still running.

    This process does not count as an owner: processes with its mark are left from an earlier run.
    """
    if owner_pid == os.getpid():
        return False
    try:
        owner = psutil.Process(owner_pid)
        is_older = owner.create_time() <= started.create_time()  # else the id has been reused
        return is_older and owner.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _list_descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _end_all(members: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill repeatedly until no process is left: a killed process may just have started another."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := list(members())) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)


@contextmanager
def _adopt_orphans() -> Iterator[None]:
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
