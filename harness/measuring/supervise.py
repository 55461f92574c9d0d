"""Supervision of a child process: limits, bounded output, and termination of its process tree."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import psutil

from harness import errors
from harness.errors import BenchError, OutputError
from harness.machine.facts import read_memory_bytes
from harness.measuring.child import PROGRESS_PREFIX, REFUSED, is_out_of_memory, locate_refusal
from harness.records.record import Status
from harness.trials.spec import Limits

BEGIN = "harness.measuring.child"
POLL_S = 0.25  # interval of memory checks; they take well below 0.1% of a core
MEMORY_SHARE = 0.8  # fraction of the machine's memory, if no limit is configured
KEPT_BYTES = 512 * 2**10  # logged bytes of a child's first output, and as many of its last
_SHOWN = 500  # characters of a child's last output in messages
_LEFT_OUT = " ... "
_TRACEBACK = "Traceback (most recent call last):"
_CHUNK_BYTES = 64 * 2**10  # capacity of a pipe
_PROGRESS_BYTES = PROGRESS_PREFIX.encode()
_SET_ADOPTS, _GET_ADOPTS = 36, 37  # PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER
_PATIENCE_S = 10.0  # wait for processes that are blocked by a device and ignore signals
Members = Callable[[], list[psutil.Process]]


@dataclass(frozen=True, slots=True)
class Ending:
    """Outcome of a child process.

    Attributes:
        returncode: Exit code; None if the child could not be started.
        status: Status for the limit it exceeded or for the failed start; None otherwise.
        reason: The limit it exceeded or the error of the failed start; None otherwise.
        is_own_fault: Whether a failed start is due to the program, not to the machine's limits.
    """

    returncode: int | None
    status: Status | None = None
    reason: str | None = None
    is_own_fault: bool = True


def supervise_child(
    interpreter: str,
    module_and_arguments: Sequence[str],
    environment: Mapping[str, str],
    limits: Limits,
    log: Path,
    hear: Callable[[str], None] = lambda words: None,
) -> Ending:
    """Run a module's `main` in a child process until it ends or exceeds a limit.

    Args:
        log: File for the child's output; of a long output, the first and the last part.
        hear: Receives the child's progress lines.

    Raises:
        OSError: The log cannot be written; the child has been ended.
    """
    command = [interpreter, "-m", BEGIN, str(os.getpid()), *module_and_arguments]
    with log.open("wb", buffering=0) as file, contain_descendants() as members:
        try:
            process = _start(command, environment)
        except OSError as error:
            return _explain_failed_start(error)
        assert process.stdout is not None  # a pipe, see _start
        with process.stdout:
            output = ChildOutput(process.stdout.fileno(), BoundedLog(file), hear)
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
        start_new_session=True,  # only the parent ends it, together with its own children
    )


def _explain_failed_start(error: OSError) -> Ending:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        reason = f"{error.strerror}; raise `ulimit -n` and rerun"
        return Ending(None, "unsupported", reason, is_own_fault=False)
    lacks_memory = is_out_of_memory(error) or error.errno == errno.EAGAIN
    status: Status = "oom" if lacks_memory else "unsupported"
    return Ending(None, status, error.strerror, is_own_fault=not lacks_memory)


def _watch(
    process: subprocess.Popen[bytes], output: ChildOutput, members: Members, limits: Limits
) -> tuple[Status | None, str | None]:
    """Wait until the process ends or exceeds a limit; return the limit's status and reason."""
    deadline_s = time.monotonic() + limits.longest_s
    while True:
        look_s = min(time.monotonic() + POLL_S, deadline_s)
        output.take(look_s)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, look_s - time.monotonic()))
            return None, None
        excess = find_memory_excess(members(), limits)
        if excess is not None:
            return "oom", excess
        if time.monotonic() >= deadline_s:
            return "timeout", describe_timeout(limits)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # Kill the whole group together so that none keeps printing; household ends detached processes.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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


def mark(word: str) -> str:
    """Return the mark by which `end_marked` finds processes that this process starts.

    It has the word and the process id of the owner.
    """
    return f"{word}:{os.getpid()}"


def end_marked(variable: str, word: str) -> int:
    """End this user's processes that carry a mark of the word in an environment variable.

    This process, its ancestors and processes whose owner is still running are spared.

    Returns:
        The number of processes ended.
    """
    spared = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    processes = {
        process
        for process in psutil.process_iter()
        if process.pid not in spared and _is_left(process, variable, word)
    }
    _end_all(lambda: {process for process in processes if process.is_running()})
    return len(processes)


def _is_left(process: psutil.Process, variable: str, word: str) -> bool:
    try:
        if process.uids().real != os.getuid():
            return False
        marks = [entry.partition(":") for entry in process.environ().get(variable, "").split()]
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


def compute_memory_limit(limits: Limits) -> int:
    """Return the memory limit, by default four fifths of the machine's memory."""
    return limits.memory_bytes or int(MEMORY_SHARE * read_memory_bytes())


def find_memory_excess(processes: Iterable[psutil.Process], limits: Limits) -> str | None:
    """Return the reason if processes together exceed the memory limit, or None."""
    used, allowed = sum(map(_read_resident_bytes, processes)), compute_memory_limit(limits)
    if used <= allowed:
        return None
    return f"used {used / 2**20:.0f} MiB of memory; limits.memory_bytes is {allowed}"


def describe_timeout(limits: Limits) -> str:
    """Return the reason of a process that exceeded the time limit."""
    return f"not finished within limits.time_s={limits.longest_s:g}"


def explain_death(returncode: int, last_line: str = "") -> str:
    """Return why a child ended without a result: its last line, or the signal that killed it."""
    if returncode >= 0:
        return last_line or f"exit code {returncode}"
    name = _name_signal(-returncode)
    hint = " (by a user, or by the kernel for lack of memory)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}" + (f"; last line: {last_line}" if last_line else "")


def _name_signal(number: int) -> str:
    """Return a signal's name; Python has none for most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number} (SIGRTMIN+{number - signal.SIGRTMIN})"


def _read_resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


class BoundedLog:
    """Log file with the first KEPT_BYTES of the output and, after `finish`, the last ones."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._room = KEPT_BYTES
        self._last = bytearray()
        self._n_left_out = 0

    def write(self, data: bytes) -> None:
        """Write the first bytes to the file, and remember the last ones.

        Raises:
            OSError: The disk is full.
        """
        self._write_to_file(data[: self._room])
        self._last += data[self._room :]
        self._room -= min(self._room, len(data))
        excess = max(0, len(self._last) - KEPT_BYTES)
        del self._last[:excess]
        self._n_left_out += excess

    def finish(self) -> None:
        """Append the last bytes to the file."""
        if self._n_left_out:
            self._write_to_file(f"\n[{self._n_left_out} bytes omitted]\n".encode())
        self._write_to_file(bytes(self._last))

    def _write_to_file(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) or 0 :]


class ChildOutput:
    """Reader of the pipe to which a child prints.

    The waiting parent reads it in the same thread, so that a child that prints endlessly can
    neither fill the disk nor keep the parent from checking the limits.

    Args:
        pipe: File descriptor of the reading end.
        hear: Receives the child's progress lines (see child.report_progress) and no other output.
    """

    def __init__(
        self, pipe: int, log: BoundedLog, hear: Callable[[str], None] = lambda words: None
    ) -> None:
        os.set_blocking(pipe, False)
        self._pipe, self._log, self._hear = pipe, log, hear
        self._unfinished = b""  # the incomplete last line, cut to the length of a progress line
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)
        self._is_over = False

    def take(self, until_s: float) -> None:
        """Read output until a time of time.monotonic, or until the child closes the pipe."""
        while not self._is_over and (left_s := until_s - time.monotonic()) > 0:
            if self._poll.poll(left_s * 1e3):
                self._take_chunk()

    def take_rest(self) -> None:
        """Read the rest of the pipe without waiting for more."""
        while not self._is_over and self._poll.poll(0):
            self._take_chunk()
        self._log.finish()

    def _take_chunk(self) -> None:
        data = os.read(self._pipe, _CHUNK_BYTES)
        self._is_over = not data
        self._log.write(data)
        *lines, unfinished = (self._unfinished + data).split(b"\n")
        self._unfinished = unfinished[:_SHOWN]
        for line in lines:
            if line.startswith(_PROGRESS_BYTES):
                message = line[len(_PROGRESS_BYTES) :][:_SHOWN]
                self._hear(message.decode(errors="replace"))


def read_last_line(log: Path) -> str:
    """Return the last output of a process in one line; empty if it printed nothing.

    After a traceback this starts at the type of the exception, because the last line of a long
    message is not informative.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    filled = [line for line in lines if line.strip()]
    text = " ".join(" ".join(filled[_find_last_message(filled) :]).split())
    if len(text) <= _SHOWN:
        return text
    half = (_SHOWN - len(_LEFT_OUT)) // 2
    return f"{text[:half]}{_LEFT_OUT}{text[-half:]}"


def _find_last_message(lines: Sequence[str]) -> int:
    """Return the index of the exception after the last traceback, or else of the last line."""
    begins = [index for index, line in enumerate(lines) if line.rstrip() == _TRACEBACK]
    below = range(begins[-1] + 1, len(lines)) if begins else ()
    return next((index for index in below if not lines[index].startswith(" ")), -1)


def read_refusal(spec_path: Path, exit_code: int | None) -> BenchError | None:
    """Return the refusal of a worker as an error of the original type, or None.

    Raises:
        OutputError: The worker could not write its refusal.
    """
    path = locate_refusal(spec_path)
    if exit_code != REFUSED or not path.exists():
        return None
    try:
        refusal = json.loads(path.read_text(encoding="utf-8"))
        error: BenchError = getattr(errors, refusal["error"])(refusal["line"])
    except (ValueError, TypeError, KeyError) as fault:
        raise OutputError(
            f"the worker's error in {path.parent} is truncated; free disk space there or set TMPDIR"
            " to another directory, then rerun"
        ) from fault
    return error
