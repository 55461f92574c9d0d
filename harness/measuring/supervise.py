"""A child process under limits: what it prints is bounded, and nothing of it stays behind."""

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
from harness.measuring.child import REFUSED, SAID, is_out_of_memory, refusal_path
from harness.records.record import Status
from harness.trials.spec import Limits

BEGIN = "harness.measuring.child"
POLL_S = 0.25  # between looks at a child's memory; costs well below 0.1 % of a core
MEMORY_SHARE = 0.8  # of the machine's, where no limit is given
KEPT_BYTES = 512 * 2**10  # of the first words that a child prints, and as many of the last
_SHOWN = 500  # characters of its last words
_LEFT_OUT = " ... "
_TRACEBACK = "Traceback (most recent call last):"
_CHUNK_BYTES = 64 * 2**10  # what a pipe holds
_SAID_BYTES = SAID.encode()
_SET_ADOPTS, _GET_ADOPTS = 36, 37  # PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER
_PATIENCE_S = 10.0  # with what a device holds and no signal ends
Members = Callable[[], list[psutil.Process]]


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
    process: subprocess.Popen[bytes], output: ChildOutput, members: Members, limits: Limits
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


def memory_limit_bytes(limits: Limits) -> int:
    """The memory limit, by default four fifths of the machine's memory."""
    return limits.memory_bytes or int(MEMORY_SHARE * psutil.virtual_memory().total)


def memory_excess(processes: Iterable[psutil.Process], limits: Limits) -> str | None:
    """The reason to end processes for the memory of all of them, None where there is none."""
    used, allowed = sum(map(_resident_bytes, processes)), memory_limit_bytes(limits)
    if used <= allowed:
        return None
    return f"used {used / 2**20:.0f} MiB, limits.memory_bytes is {allowed}"


def timeout_reason(limits: Limits) -> str:
    """The reason to end a process for its time."""
    return f"not done within limits.time_s={limits.time_s:g}"


def death_reason(returncode: int, last_line: str = "") -> str:
    """Why a child ended that left no result: its last line, or the signal that ended it."""
    if returncode >= 0:
        return last_line or f"exit code {returncode}"
    name = _signal_words(-returncode)
    hint = " (by a person, or by the kernel for lack of memory)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}" + (f"; last line: {last_line}" if last_line else "")


def _signal_words(number: int) -> str:
    """A signal's name; of most real-time signals Python knows none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number} (SIGRTMIN+{number - signal.SIGRTMIN})"


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


class BoundedLog:
    """A file with the first KEPT_BYTES of what is written to it and, once it is over, the last."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._room = KEPT_BYTES
        self._last = bytearray()
        self._n_left_out = 0

    def write(self, data: bytes) -> None:
        """Keep what is among the first or the last; raises OSError where the disk is full."""
        self._to_file(data[: self._room])
        self._last += data[self._room :]
        self._room -= min(self._room, len(data))
        excess = max(0, len(self._last) - KEPT_BYTES)
        del self._last[:excess]
        self._n_left_out += excess

    def finish(self) -> None:
        """Write the last words behind the first."""
        if self._n_left_out:
            self._to_file(f"\n[{self._n_left_out} bytes are left out here]\n".encode())
        self._to_file(bytes(self._last))

    def _to_file(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) or 0 :]


class ChildOutput:
    """The reading end of the pipe that a child prints to.

    It is read while the parent waits, in the same thread: a child that prints without end can
    neither fill a disk nor keep the parent from looking at its limits.

    hear: takes what the child says, line by line (say); nothing else that it prints.
    """

    def __init__(
        self, pipe: int, log: BoundedLog, hear: Callable[[str], None] = lambda words: None
    ) -> None:
        os.set_blocking(pipe, False)
        self._pipe, self._log, self._hear = pipe, log, hear
        self._unfinished = b""  # the line that is not over yet, as far as it can be a said one
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)
        self._is_over = False

    def take(self, until_s: float) -> None:
        """Take what comes until then, by time.monotonic, asleep between; less where all is said."""
        while not self._is_over and (left_s := until_s - time.monotonic()) > 0:
            if self._poll.poll(left_s * 1e3):
                self._take_chunk()

    def take_rest(self) -> None:
        """Take what the pipe still holds, and wait for no more."""
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
            if line.startswith(_SAID_BYTES):
                said = line[len(_SAID_BYTES) :][:_SHOWN]
                self._hear(said.decode(errors="replace"))


def last_line(log: Path) -> str:
    """The last words of a process, in one line; empty where it printed none.

    All from Python's last exception on, its type first: the last line of many says little.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    filled = [line for line in lines if line.strip()]
    words = " ".join(" ".join(filled[_last_words(filled) :]).split())
    if len(words) <= _SHOWN:
        return words
    half = (_SHOWN - len(_LEFT_OUT)) // 2
    return f"{words[:half]}{_LEFT_OUT}{words[-half:]}"


def _last_words(lines: Sequence[str]) -> int:
    """The line of the exception below the last traceback, else the last line that there is."""
    begins = [place for place, line in enumerate(lines) if line.rstrip() == _TRACEBACK]
    below = range(begins[-1] + 1, len(lines)) if begins else ()
    return next((place for place in below if not lines[place].startswith(" ")), -1)


def read_refusal(spec_path: Path, exit_code: int | None) -> BenchError | None:
    """Return what a worker refused that ended with this exit code, as its own kind of error.

    Raises OutputError where it could not write that down.
    """
    path = refusal_path(spec_path)
    if exit_code != REFUSED or not path.exists():
        return None
    try:
        refusal = json.loads(path.read_text(encoding="utf-8"))
        error: BenchError = getattr(errors, refusal["error"])(refusal["line"])
    except (ValueError, TypeError, KeyError) as fault:
        raise OutputError(
            f"the worker's refusal in {path.parent} is cut off: make room there, or name another"
            " folder with TMPDIR, and the same command goes on"
        ) from fault
    return error
