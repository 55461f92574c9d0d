"""Supervision of child processes: limits, bounded output, and termination of process trees."""

from __future__ import annotations

import errno
import math
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from dynbatch.harness.machine.facts import read_memory_bytes
from dynbatch.harness.measuring.processes.child import is_out_of_memory
from dynbatch.harness.measuring.processes.child_output import ChildOutput
from dynbatch.harness.measuring.processes.fork_server import ForkedProcess
from dynbatch.harness.measuring.processes.process_tree import Members, contain_descendants
from dynbatch.harness.records.record import Status
from dynbatch.harness.trials.spec import Limits

BEGIN = "dynbatch.harness.measuring.processes.child"
Fork = Callable[[socket.socket], ForkedProcess | None]

POLL_S = 0.25  # interval of memory checks; they take well below 0.1% of a core
# Most seconds that count between two looks at a child. Starting and ending other workers delays a
# look by less; after more, this process was stopped (SIGSTOP, Ctrl-Z), and its child may have done
# its work or have been stopped, too.
LOOK_S = 20.0
MEMORY_SHARE = 0.8  # fraction of the machine's memory, if no limit is configured


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
) -> Ending:
    """Run a module's `main` in a child process until it ends or exceeds a limit.

    Args:
        log: File for the child's output; of a long output, the first and the last part.

    Raises:
        OSError: The log cannot be written; the child has been ended.
    """
    with contain_descendants() as members:
        child = ChildProcess(interpreter, module_and_arguments, environment, limits, log)
        watch = Watch(members)
        try:
            while not child.has_ended:
                watch.wait([child])
        finally:
            child.end()
    return child.ending


class ChildProcess:
    """Child process with limits and bounded output.

    Its time limit covers the time in which it is active and watched. A child that waits for its
    turn is not active, and a process that is stopped watches no child.

    Attributes:
        is_active: Whether its time counts; False while it waits for a command.
        channel: This process's end of its socket, if it has one.
        excess: Status and reason of the limit that it exceeded; None within its limits.

    Args:
        log: File for its output; of a long output, the first and the last part.
        fork: Starts it given its end of a socket; if it returns None, a new interpreter is started,
            whose module's last argument is the socket's descriptor. None: it gets no socket.
    """

    def __init__(
        self,
        interpreter: str,
        module_and_arguments: Sequence[str],
        environment: Mapping[str, str],
        limits: Limits,
        log: Path,
        *,
        fork: Fork | None = None,
    ) -> None:
        self.is_active = True
        self.channel: socket.socket | None = None
        self.excess: tuple[Status, str] | None = None
        self._limits = limits
        self._left_s, self._looked_at = limits.longest_s, time.monotonic()
        self._file = log.open("wb", buffering=0)
        self._failure: Ending | None = None
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.output: ChildOutput | None = None
        command = [interpreter, "-m", BEGIN, str(os.getpid()), *module_and_arguments]
        try:
            self._start(command, environment, fork)
        except OSError as error:
            self._failure = _explain_failed_start(error)
        self._end_descriptor = _open_end_descriptor(self.pid)

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str], fork: Fork | None
    ) -> None:
        theirs: list[socket.socket] = []
        if fork is not None:
            self.channel, their_end = socket.socketpair()
            theirs = [their_end]
            self._process = fork(their_end)
        descriptors = [end.fileno() for end in theirs]
        try:
            self._process = self._process or subprocess.Popen(
                [*command, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=descriptors,
                start_new_session=True,  # only the parent ends it, together with its own children
            )
        finally:
            for end in theirs:
                end.close()
        assert self._process.stdout is not None  # a pipe
        self.output = ChildOutput(self._process.stdout.fileno(), self._file)

    @property
    def pid(self) -> int | None:
        """Process id; None if it could not be started."""
        return None if self._process is None else self._process.pid

    @property
    def has_ended(self) -> bool:
        """Return whether it has ended, by itself or because of a limit."""
        return self._process is None or self._process.poll() is not None

    @property
    def ending(self) -> Ending:
        """Outcome, once it has ended."""
        if self._failure is not None:
            return self._failure
        assert self._process is not None  # else its start failed
        return Ending(self._process.returncode, *(self.excess or (None, None)))

    def list_descriptors(self) -> Iterator[int]:
        """Yield the file descriptors that become readable when it prints or ends."""
        if self.output is not None and not self.output.is_over:
            yield self.output.pipe
        if self.channel is not None:
            yield self.channel.fileno()
        if self._end_descriptor is not None:
            yield self._end_descriptor

    def charge_time(self) -> None:
        """Charge the time since the last call to its limit, if it was active; at most LOOK_S."""
        now = time.monotonic()
        if self.is_active:
            self._left_s -= min(now - self._looked_at, LOOK_S)
        self._looked_at = now
        if self._left_s <= 0 and not self.has_ended:
            self.exceed("timeout", describe_timeout(self._limits))

    def compute_deadline(self) -> float:
        """Return the time of time.monotonic at which its time limit ends; infinite if inactive."""
        return self._looked_at + self._left_s if self.is_active else math.inf

    def check_memory(self, used_bytes: int) -> None:
        excess = find_memory_excess(used_bytes, self._limits)
        if excess is not None and not self.has_ended:
            self.exceed("oom", excess)

    def exceed(self, status: Status, reason: str) -> None:
        self.excess = (status, reason)
        self._kill()

    def close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def end(self) -> None:
        """End it and its process group, and complete its log; a second call does nothing."""
        if self._file.closed:
            return
        self.close_channel()
        if self._end_descriptor is not None:
            os.close(self._end_descriptor)
            self._end_descriptor = None
        with self._file:
            if self._process is not None and self.output is not None:
                self._kill()
                assert self._process.stdout is not None  # a pipe, see _start
                with self._process.stdout:
                    self.output.take_rest()

    def _kill(self) -> None:
        # Kill the whole group together so that none keeps printing; contain_descendants ends
        # detached processes.
        assert self._process is not None  # else it has ended
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _open_end_descriptor(pid: int | None) -> int | None:
    """Return a descriptor that is readable once the process has ended; None if there is none."""
    if pid is None or not hasattr(os, "pidfd_open"):
        return None  # its end is then noticed at the next look
    with suppress(OSError):
        return os.pidfd_open(pid)
    return None


class Watch:
    """Watch over children: their output, their limits and their ends.

    Attributes:
        used_bytes: Resident bytes of each child at the last look, by its process id.
        members: Returns all descendants of this process that were started since the children.
    """

    def __init__(self, members: Members) -> None:
        self.used_bytes: dict[int, int] = {}
        self.members = members
        self._looked_at = time.monotonic()  # a look at memory reads all processes of the machine

    def wait(self, children: Sequence[ChildProcess]) -> None:
        """Wait until a child prints or ends, or a limit must be checked; check limits."""
        until = min([time.monotonic() + POLL_S, *(child.compute_deadline() for child in children)])
        poll = select.poll()
        for child in children:
            for descriptor in child.list_descriptors():
                poll.register(descriptor, select.POLLIN)
        heard = {name for name, _ in poll.poll(max(0.0, until - time.monotonic()) * 1e3)}
        for child in children:
            if child.output is not None and child.output.pipe in heard:
                child.output.take_chunk()
            child.charge_time()
        if time.monotonic() - self._looked_at >= POLL_S:
            self.used_bytes = _measure_memory(children, self.members())
            for child in children:
                child.check_memory(self.used_bytes.get(child.pid or 0, 0))
            self._looked_at = time.monotonic()


def _measure_memory(
    children: Sequence[ChildProcess], members: Sequence[psutil.Process]
) -> dict[int, int]:
    """Return the resident bytes of each child and its descendants, by the child's process id.

    Processes that no longer descend from a child count for a single child.
    """
    parents = {process.pid: _read_parent(process) for process in members}
    used = {child.pid: 0 for child in children if child.pid is not None}
    for process in members:
        owner: int | None = process.pid
        while owner is not None and owner not in used:
            owner = parents.get(owner)
        if owner is None and len(used) == 1:
            owner = next(iter(used))
        if owner is not None:
            used[owner] += read_resident_bytes(process)
    return used


def _read_parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def _explain_failed_start(error: OSError) -> Ending:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        reason = f"{error.strerror}; raise `ulimit -n` and rerun"
        return Ending(None, "unsupported", reason, is_own_fault=False)
    lacks_memory = is_out_of_memory(error) or error.errno == errno.EAGAIN
    status: Status = "oom" if lacks_memory else "unsupported"
    return Ending(None, status, error.strerror, is_own_fault=not lacks_memory)


def compute_memory_limit(limits: Limits) -> int:
    """Return the memory limit, by default four fifths of the machine's memory."""
    return limits.memory_bytes or int(MEMORY_SHARE * read_memory_bytes())


def find_memory_excess(used_bytes: int, limits: Limits) -> str | None:
    """Return the reason if the processes of a trial use more memory than its limit, or None."""
    allowed = compute_memory_limit(limits)
    if used_bytes <= allowed:
        return None
    return f"used {used_bytes / 2**20:.0f} MiB of memory; limits.memory_bytes is {allowed}"


def describe_timeout(limits: Limits) -> str:
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


def read_resident_bytes(process: psutil.Process) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
