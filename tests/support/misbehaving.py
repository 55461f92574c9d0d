"""An adapter whose process misbehaves in the way that `system.options.way` names."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import numpy as np

from harness.contracts.model import Model, Weights
from harness.contracts.system import RunSettings
from systems.on_core.reference import Adapter as Reference

FLOOD_BYTES = 48 * 2**20
FIRST, LAST = b"the first words\n", b"the last words\n"


@dataclass(frozen=True, slots=True)
class MisbehavingOptions:
    """The way; pid_file takes the process id of what it leaves behind."""

    way: str = ""
    pid_file: str | None = None


class Adapter(Reference):
    """The oracle in bad company."""

    option_type = MisbehavingOptions
    options: MisbehavingOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        if self.options.way == "enomem":
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        if self.options.way == "numpy_memory":
            np.ones(2**58)
        if self.options.way == "caused_by_memory":
            raise ValueError("the compiler gave up") from MemoryError()

    def prepare(self, model: Model, weights: Weights) -> None:
        super().prepare(model, weights)
        way = self.options.way
        if way == "real_time_signal":
            os.kill(os.getpid(), signal.SIGRTMIN + 6)
        if way.startswith("floods"):
            _flood()
        if way == "floods_and_aborts":
            os.abort()
        if way.startswith("detaches"):
            detach(Path(str(self.options.pid_file)), bare="bare" in way)
        if way == "forks":
            _fork_and_go_on(Path(str(self.options.pid_file)))
        if way == "exits_64":
            _say_and_exit(64)
        if way == "hangs":
            Path(str(self.options.pid_file)).write_text(str(os.getpid()))
            sleep(600)
        if way == "bad_alloc":
            os.write(2, b"terminate called: what():  std::bad_alloc\n")
            os.abort()


def _fork_and_go_on(pid_file: Path) -> None:
    """Come back twice; the parent waits until the child has ended, and notes how it did."""
    child = os.fork()
    if child:
        pid_file.write_text(str(os.waitpid(child, 0)[1]))


def _say_and_exit(code: int) -> None:
    print("no refusal of the harness", file=sys.stderr, flush=True)
    os._exit(code)


def _flood() -> None:
    os.write(1, FIRST)
    line = b"x" * 1023 + b"\n"
    for _ in range(FLOOD_BYTES // len(line)):
        os.write(1, line)
    os.write(1, LAST)


def detach(pid_file: Path, *, bare: bool) -> None:
    """Start what is nobody's child and in no one's session, and, where bare, has no variables."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            pid_file.write_text(str(os.getpid()))
            command: Sequence[str] = ("sleep", "600")
            os.execve("/bin/sleep", command, {} if bare else dict(os.environ))
        os._exit(0)
    while not (pid_file.exists() and pid_file.read_text()):
        sleep(0.01)
