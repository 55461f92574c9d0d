"""A child process under limits: what it prints is bounded, and nothing of it stays behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.measuring.child_process import POLL_S, is_out_of_memory, memory_excess, timeout_reason
from harness.measuring.household import Members, household
from harness.measuring.output import BoundedLog, Output
from harness.records.record import Status
from harness.trials.spec import Limits

BEGIN = "harness.measuring.begin"


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
