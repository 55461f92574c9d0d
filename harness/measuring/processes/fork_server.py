"""Fork servers: processes that have imported a system's framework, and fork its workers.

    python -m dynbatch.harness.measuring.processes.fork_server ADAPTER DESCRIPTOR

Importing a framework takes 1 to 6 s of CPU time, longer than most systems run at small sizes. A
fork server imports the worker and the adapter ADAPTER and does nothing else: it creates no system
and starts no thread. It ends if the imports have started a thread, because a fork has one thread,
or a process, which no check of the worker would see.
Requests come through the socket DESCRIPTOR. Each has the arguments of a worker, its standard output
and its end of a socket. The answer is the process id of the worker.

A worker is forked twice, so that Linux makes the measuring process its parent, as if that process
had started it (contain_descendants makes it a subreaper). Rounds are forked from different servers,
because forks of one server have the same memory layout.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.facts import list_usable_cpus, read_memory_bytes
from dynbatch.harness.machine.files import read_stamp
from dynbatch.harness.machine.process import freeze_new_objects
from dynbatch.harness.measuring.processes import child
from dynbatch.harness.trials.sources import WORKER

_MODULE = "dynbatch.harness.measuring.processes.fork_server"
_READY, _OUTDATED = b"ready", b"outdated"
_IMPORT_S = 120.0  # TensorFlow takes 5 s on a quiet machine, and longer from a slow disk
_ANSWER_S = 10.0  # a fork takes 10 to 60 ms
_MESSAGE_BYTES = 65536
_MEMORY_SHARE = 1 / 8  # fraction of the machine's memory; beyond it, no server is started or kept


@dataclass(frozen=True, slots=True)
class ServerKey:
    """Adapter, environment and round of a fork server's workers.

    Attributes:
        environment: Sorted items of the environment.
        round: Round of their trials.
    """

    adapter: str
    environment: tuple[tuple[str, str], ...]
    round: int


class ForkedProcess:
    """Process forked by a fork server, with the part of subprocess.Popen's interface that is used.

    Attributes:
        returncode: Exit code as in subprocess.Popen; None while it runs.
        stdout: Reading end of its standard output and error.
    """

    def __init__(self, pid: int, stdout_descriptor: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = os.fdopen(stdout_descriptor, "rb", buffering=0)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None  # it has ended
        return code

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # reaped elsewhere, as subprocess.Popen puts it
                pid, status = self.pid, 0
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """Fork server as its user sees it.

    Attributes:
        is_outdated: Whether it has refused a worker because a file of a module has changed.
    """

    def __init__(self, key: ServerKey) -> None:
        self.is_outdated = False
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        entry = [sys.executable, "-m", child.__name__, str(os.getpid())]
        with theirs:
            self._process = subprocess.Popen(
                [*entry, _MODULE, key.adapter, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(key.environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self, deadline: float) -> bool:
        """Return whether it can fork workers, once its imports are done.

        Args:
            deadline: Latest time of time.monotonic.
        """
        return self._receive(deadline - time.monotonic()) == _READY

    def fork(
        self, arguments: Sequence[str], variables: Mapping[str, str], channel: socket.socket
    ) -> ForkedProcess | None:
        """Fork a worker; return None if the server cannot.

        Args:
            arguments: Arguments of the worker, without the descriptor of its socket.
            variables: Environment variables in addition to the server's.
            channel: The worker's end of its socket.
        """
        request = json.dumps([os.getpid(), list(arguments), dict(variables)]).encode()
        reading, writing = os.pipe()
        answer = b""
        with suppress(OSError):
            socket.send_fds(self._ours, [request], [writing, channel.fileno()])
            answer = self._receive(_ANSWER_S)
        os.close(writing)
        if not answer.isdigit():
            os.close(reading)
            self.is_outdated = answer == _OUTDATED
            return None
        return ForkedProcess(int(answer), reading)

    def end(self) -> None:
        """End the server and what its imports have started, but not its workers."""
        self._ours.close()
        with suppress(OSError):  # it has no group of its own yet
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(OSError):
            self._process.kill()
        self._process.wait()

    def _receive(self, timeout_s: float) -> bytes:
        """Return a message; empty if none arrives in time or the server has ended."""
        poll = select.poll()
        poll.register(self._ours, select.POLLIN)
        if not poll.poll(max(0.0, timeout_s) * 1e3):
            return b""
        with suppress(OSError):
            return self._ours.recv(_MESSAGE_BYTES)
        return b""


class ForkServers:
    """Fork servers of a run. As a context manager, it ends them."""

    def __init__(self) -> None:
        self._servers: dict[ServerKey, ForkServer] = {}  # least recently used first
        self._unfit: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    def __enter__(self) -> ForkServers:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.end()
        self._servers.clear()

    def start(self, keys: Iterable[ServerKey]) -> None:
        """Start the servers that are missing, one on each CPU, and end some that are out of use.

        An adapter whose imports fail, start threads or processes, or take too long has no server.
        None is started once the servers take their share of memory, or without descriptors.
        """
        wanted = {key: None for key in keys if (key.adapter, key.environment) not in self._unfit}
        self._end_unused(wanted)
        missing = [key for key in wanted if key not in self._servers]
        n_at_once = len(list_usable_cpus())
        with suppress(OSError):
            for first in range(0, len(missing), n_at_once):
                used = sum(map(_read_bytes, self._servers.values()))
                if used > _MEMORY_SHARE * read_memory_bytes():
                    break
                self._start_together(missing[first : first + n_at_once])
        for key in wanted:
            if key in self._servers:
                self._servers[key] = self._servers.pop(key)

    def _start_together(self, keys: Sequence[ServerKey]) -> None:
        started: dict[ServerKey, ForkServer] = {}
        try:
            for key in keys:
                started[key] = ForkServer(key)
            deadline = time.monotonic() + _IMPORT_S
            for key, server in started.items():
                if server.wait_until_ready(deadline):
                    self._servers[key] = server
                else:
                    self._unfit.add((key.adapter, key.environment))
        finally:
            for key, server in started.items():
                if key not in self._servers:
                    server.end()

    def fork(
        self,
        key: ServerKey,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        channel: socket.socket,
    ) -> ForkedProcess | None:
        """Fork a worker; return None without a server for it."""
        server = self._servers.get(key)
        worker = None if server is None else server.fork(arguments, variables, channel)
        if server is not None and worker is None:
            if not server.is_outdated:
                self._unfit.add((key.adapter, key.environment))
            self._drop(key)
        return worker

    def _end_unused(self, wanted: Iterable[ServerKey]) -> None:
        rounds = {key.round for key in wanted}
        unused = [key for key in self._servers if key not in wanted]
        for key in unused:
            if key.round not in rounds:
                self._drop(key)
        kept = {key: _read_bytes(self._servers[key]) for key in unused if key in self._servers}
        for key in list(kept):
            if sum(kept.values()) > _MEMORY_SHARE * read_memory_bytes():
                del kept[key]
                self._drop(key)

    def _drop(self, key: ServerKey) -> None:
        self._servers.pop(key).end()


def _read_bytes(server: ForkServer) -> int:
    try:
        return int(psutil.Process(server.pid).memory_info().rss)
    except psutil.Error:
        return 0


def main(arguments: Sequence[str]) -> int:
    """Import the worker and an adapter, and fork workers until the socket is closed."""
    adapter, descriptor = arguments
    started_at = time.time()
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    with freeze_new_objects():
        importlib.import_module(WORKER)
        contract = importlib.import_module("dynbatch.harness.contracts.system")
        try:
            contract.load_adapter(adapter)
        except BenchError:
            return child.REFUSED  # a worker that is started directly reports it
    child.end_fork()  # made by an import
    gc.collect()
    gc.freeze()  # a collection in a worker would otherwise copy all pages
    if len([*Path("/proc/self/task").iterdir()]) > 1 or psutil.Process().children():
        return child.REFUSED
    paths = [Path(file) for file in map(_find_file, list(sys.modules.values())) if file]
    stamps = {path: read_stamp(path) for path in paths}
    is_edited = any(s and started_at < s[0] * 1e-9 <= time.time() for s in stamps.values())
    channel.send(_READY)
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
        if not request:
            return 0
        if is_edited or any(read_stamp(path) != stamp for path, stamp in stamps.items()):
            channel.send(_OUTDATED)
            return 0
        _answer(channel, request, descriptors)


def _find_file(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def _answer(channel: socket.socket, request: bytes, descriptors: Sequence[int]) -> None:
    """Fork a worker by way of a process that ends; the worker answers with its id."""
    between = os.fork()
    if between == 0:
        try:
            between = os.getpid()
            if os.fork() == 0:
                _become_worker(between, channel, request, descriptors)
        finally:
            os._exit(0)
    with suppress(ChildProcessError):  # the parent ignores its children
        os.waitpid(between, 0)
    for descriptor in descriptors:
        os.close(descriptor)


def _become_worker(
    between: int, channel: socket.socket, request: bytes, descriptors: Sequence[int]
) -> NoReturn:
    """Run the worker in this process, which has been forked."""
    code = 1
    try:
        parent_pid, arguments, variables = json.loads(request)
        output, turns = descriptors
        os.setsid()  # only the parent ends it, together with its own children
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.update(variables)
        os.environ[child.START] = child.FROM_SERVER
        while os.getppid() == between:  # it ends now
            time.sleep(1e-3)
        child.bind_to_parent(parent_pid)
        child.claim_process()
        channel.send(str(os.getpid()).encode())  # once it can be ended together with its children
        channel.close()
        sys.argv[1:] = [str(parent_pid), WORKER, *arguments, str(turns)]
        code = int(importlib.import_module(WORKER).main(sys.argv[3:]))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    child.exit_process(code)
