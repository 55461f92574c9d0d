"""The reference, with the fault that `system.options.fault` names."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import sleep  # a system that could read a clock is refused
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import Clock, Counters, Result, RunSettings
from dynbatch.harness.errors import ScheduleError, UnsupportedTrial
from dynbatch.systems.on_core.reference import Adapter as Reference

FLOOD_BYTES = 48 * 2**20
FIRST, LAST = b"the first words\n", b"the last words\n"


@dataclass(frozen=True, slots=True)
class FaultOptions:
    fault: str | None = None  # `kind` or `kind:detail`
    at: str = "prepare"  # method that has the fault
    file: str | None = None  # for a process id or an exit status, or directory that a fault removes
    # Gets a line with this process and its run when a measurement starts and as it continues.
    log: str | None = None
    pause_s: float = 0.0  # minimum duration of `prepare`, so that it can be interrupted


class Adapter(Reference):
    """The reference, with a fault in one of its methods."""

    phases = ("backward", "update")
    option_type = FaultOptions
    options: FaultOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.n_runs = 0
        self.n_compiled_for = 0
        self.first_outputs = np.zeros(0)
        if self.options.at == "__init__":
            do(self.options.fault, self.options.file)
        elif self.options.at != "skip":
            setattr(self, self.options.at, self._behind_fault(getattr(self, self.options.at)))

    def _behind_fault(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*given: Any, **named: Any) -> Any:
            do(self.options.fault, self.options.file)
            return method(*given, **named)

        return wrong

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        options = cls.options_of(settings)
        if options.at == "skip":
            do(options.fault, options.file)
        return "not on this machine" if options.fault == "skip" else None

    def prepare(self, model: Model, weights: Weights) -> None:
        self._note("begin")
        super().prepare(model, weights)
        sleep(self.options.pause_s)
        self._note("goes on")

    def compile_for(self, instances: Sequence[Any]) -> None:
        self.n_compiled_for += 1

    def n_compilations(self) -> int | None:
        return self.n_runs if self.options.fault == "compiles_always" else self.n_compiled_for

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self._note("goes on")  # not in load, which must not take time
        self.n_runs += 1
        super().run(clock, update=update and self.options.fault != "no_update")

    def result(self) -> Result:
        found = wrong_result(self.options.fault, super().result())
        if self.options.fault == "stale_outputs":
            self.first_outputs = self.first_outputs if self.n_runs > 1 else found.outputs
            found = replace(found, outputs=self.first_outputs)
        if self.options.fault == "rounds":
            noise = np.random.default_rng(self.n_runs).normal(size=found.outputs.shape)
            found = replace(found, outputs=found.outputs * (1 + 1e-5 * noise))
        return replace(found, counters=Counters(n_batches=self.n_runs, n_launches=None))

    def effective_options(self) -> dict[str, str]:
        return {}

    def versions(self) -> dict[str, str]:
        self._note("goes on")
        return {"fake": "1.0"}

    def _note(self, what: str) -> None:
        if self.options.log is not None:
            with Path(self.options.log).open("a") as file:
                file.write(f"{what}, {os.getpid()}, {os.getppid()}\n")


def do(fault: str | None, file: str | None = None) -> None:
    """Execute a fault; faults of results are ignored."""
    kind, _, detail = (fault or "").partition(":")
    if kind in DOINGS:
        DOINGS[kind](detail)
    elif kind in DOINGS_TO_A_FILE and file is not None:
        DOINGS_TO_A_FILE[kind](Path(file))


def _raise(detail: str) -> None:
    errors: dict[str, Exception] = {
        "value": ValueError("a fault\nover two lines"),
        "memory": MemoryError("no room for a tensor"),
        "enomem": OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        "unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a fault"),
        "stop": StopIteration(),
        "surrogate": RuntimeError("\udcff is no character"),
        "schedule": ScheduleError("policy odd: vertex 2 runs in batch 3, not after its argument 0"),
        "unsupported": UnsupportedTrial("this model is too odd"),
    }
    if detail == "recursion":
        _raise(detail)
    if detail == "numpy":
        np.empty(2**59)  # exceeds the address space: NumPy's own error
    if detail == "caused_by_memory":
        raise ValueError("the compiler gave up") from MemoryError()
    raise errors[detail]


def _say_and_exit(detail: str) -> None:
    print("no refusal of the harness", file=sys.stderr, flush=True)
    os._exit(int(detail))


def _say_bad_alloc_and_abort(_: str) -> None:
    os.write(2, b"terminate called: what():  std::bad_alloc\n")
    os.abort()


def _flood(detail: str) -> None:
    stream = {"stdout": 1, "stderr": 2}[detail]
    os.write(stream, FIRST)
    line = b"x" * 1023 + b"\n"
    for _ in range(FLOOD_BYTES // len(line)):
        os.write(stream, line)
    os.write(stream, LAST)


def _flood_and_abort(detail: str) -> None:
    _flood(detail)
    os.abort()


def _loop(_: str) -> None:
    while True:
        pass


def _hog(_: str) -> None:
    blocks = []
    while True:
        blocks.append(np.ones(2**21))  # 16 MiB
        sleep(0.002)


def _wait(_: str) -> None:
    sleep(600)


def _signal(detail: str) -> None:
    os.kill(os.getpid(), int(detail))
    sleep(5)  # until it is delivered


def _stubborn(_: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wait("")


def _lose_room(_: str) -> None:
    """Leave no space for a record, as on a full disk."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, most))  # a record has more


DOINGS: dict[str, Callable[[str], None]] = {
    "raise": _raise,
    "abort": lambda _: os.abort(),
    "exit": lambda detail: os._exit(int(detail)),
    "sys_exit": lambda detail: sys.exit(int(detail)),
    "say_and_exit": _say_and_exit,
    "bad_alloc": _say_bad_alloc_and_abort,
    "signal": _signal,
    "flood": _flood,
    "flood_and_abort": _flood_and_abort,
    "loop": _loop,
    "wait": _wait,
    "sleep": lambda detail: sleep(float(detail)),
    "stubborn": _stubborn,
    "hog": _hog,
    "lose_room": _lose_room,
}


def detach(pid_file: Path, *, bare: bool = False) -> None:
    """Start an orphaned process in its own session, without environment variables if `bare`."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            pid_file.write_text(str(os.getpid()))
            os.execve("/bin/sleep", ("sleep", "600"), {} if bare else dict(os.environ))
        os._exit(0)
    while not (pid_file.exists() and pid_file.read_text()):
        sleep(0.01)


def _fork(file: Path) -> None:
    """Fork and return in both processes; the parent waits for the child and writes its status."""
    child = os.fork()
    if child:
        file.write_text(str(os.waitpid(child, 0)[1]))


def _note_and_wait(file: Path) -> None:
    file.write_text(str(os.getpid()))
    _wait("")


def _delete(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)


def _replace(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
        folder.touch()


DOINGS_TO_A_FILE: dict[str, Callable[[Path], None]] = {
    "detach": detach,
    "detach_bare": partial(detach, bare=True),
    "fork": _fork,
    "note_and_wait": _note_and_wait,
    "delete": _delete,
    "replace": _replace,
}


def _with_gradients_times(found: Result, factor: float) -> dict[str, Any]:
    return {"gradients": {name: value * factor for name, value in found.gradients.items()}}


WRONG: dict[str, Callable[[Result], dict[str, Any]]] = {
    "wrong_loss": lambda found: {"loss": found.loss * 1.01},
    "nan_loss": lambda found: {"loss": float("nan")},
    "nan_outputs": lambda found: {"outputs": np.full_like(found.outputs, np.nan)},
    "wrong_outputs": lambda found: {"outputs": found.outputs + 0.01},
    "few_outputs": lambda found: {"outputs": found.outputs[:-1]},
    "wrong_gradient": lambda found: _with_gradients_times(found, 1.01),
    "no_gradients": lambda found: {"gradients": {}},
    "nan_gradient": lambda found: _with_gradients_times(found, np.nan),
}


def wrong_result(fault: str | None, found: Result) -> Result:
    """Return the result with a fault of results applied."""
    return replace(found, **WRONG[fault](found)) if fault in WRONG else found
