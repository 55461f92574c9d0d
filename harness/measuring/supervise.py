"""A child process under limits: what it prints is bounded, and nothing of it stays behind."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.measuring.child_process import POLL_S, is_out_of_memory, memory_excess, timeout_reason
from harness.measuring.output import BoundedLog, Output
from harness.records.record import Status
from harness.trials.spec import Limits

BEGIN = "harness.measuring.child"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended: its exit code, None where it could not be started.

    status, reason: those of the limit that the parent ended it for, or why it could not be started.
    is_own_fault: whether it is the program that could not be started, and not the machine's limits.
    """

    returncode: int | None
    status: Status | None = None
    reason: str | None = None
    is_own_fault: bool = True


def supervise(
    interpreter: str,
    module_and_arguments: Sequence[str],
    environment: Mapping[str, str],
    limits: Limits,
    log: Path,
    hear: Callable[[str], None] = lambda words: None,
) -> Ending:
    """Run a module's `main` in a process of its own until it ends or passes a limit.

    log: takes what it prints, of much the first and the last. hear: takes what it says. Raises
    OSError where the log cannot be written; the process has ended then, too.
    """
    command = [interpreter, "-m", BEGIN, str(os.getpid()), *module_and_arguments]
    with log.open("wb", buffering=0) as file, household() as members:
        try:
            process = _start(command, environment)
        except OSError as error:
            return _not_started(error)
        assert process.stdout is not None  # a pipe, see _start
        with process.stdout:
            output = Output(process.stdout.fileno(), BoundedLog(file), hear)
            try:
                status, reason = _watch(process, output, members, limits)
            finally:
                _end_group(process)
            output.take_rest()
    return Ending(process.returncode, status, reason)


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # so that it is ended with what it started, and by its parent alone
    )


def _not_started(error: OSError) -> Ending:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        why = f"{error.strerror}; raise `ulimit -n` and try again"
        return Ending(None, "unsupported", why, is_own_fault=False)
    lacks_memory = is_out_of_memory(error) or error.errno == errno.EAGAIN
    status: Status = "oom" if lacks_memory else "unsupported"
    return Ending(None, status, error.strerror, is_own_fault=not lacks_memory)


def _watch(
    process: subprocess.Popen[bytes], output: Output, members: Members, limits: Limits
) -> tuple[Status | None, str | None]:
    """Wait for the process to end, or for the first limit that it passes."""
    deadline_s = time.monotonic() + limits.time_s
    while True:
        look_s = min(time.monotonic() + POLL_S, deadline_s)
        output.take(look_s)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, look_s - time.monotonic()))
            return None, None
        excess = memory_excess(members(), limits)
        if excess is not None:
            return "oom", excess
        if time.monotonic() >= deadline_s:
            return "timeout", timeout_reason(limits)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # At once, so that none of them prints on; who left the group is found by the household.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
