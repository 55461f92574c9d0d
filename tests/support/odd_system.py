"""A system that goes wrong in the way that `system.options.fault` names; right without one.

It computes with the oracle, so that what goes wrong on purpose is all that is wrong.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep  # a system that could read a clock is refused
from typing import Any

import numpy as np

from harness.contracts.model import Model, Weights
from harness.contracts.system import Clock, Counters, Parameters, Result, RunSettings
from systems.on_core.reference import Adapter as Reference

FLOOD_BYTES = 256 * 2**20
BLOCK = 2**21  # numbers: 16 MiB


@dataclass(frozen=True, slots=True)
class FaultOptions:
    """fault: what goes wrong, `kind` or `kind:detail`; at: the method in which it does.

    log: a file that takes a line at the beginning of each measurement, and as it goes on; pause_s:
    how long preparing takes at least, so that there is something to be interrupted.
    """

    fault: str | None = None
    at: str = "prepare"
    log: str | None = None
    pause_s: float = 0.0


class Adapter(Reference):
    """The oracle, with a fault in one of its methods."""

    option_type = FaultOptions
    options: FaultOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._go_wrong("__init__")

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        options = cls.options_of(settings)
        if options.at == "skip":
            do(options.fault)
        return None

    def prepare(self, model: Model, weights: Weights) -> None:
        self._note("begin")
        super().prepare(model, weights)
        sleep(self.options.pause_s)
        self._note("goes on")
        self._go_wrong("prepare")

    def compile_for(self, instances: Sequence[Any]) -> None:
        self._go_wrong("compile_for")

    def n_compilations(self) -> int | None:
        self._go_wrong("n_compilations")
        return None

    def load(self, instances: Sequence[Any]) -> None:
        self._go_wrong("load")
        super().load(instances)

    def upcoming(self, instances: Sequence[Any]) -> None:
        self._go_wrong("upcoming")

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self._note("goes on")  # not in load, which may do nothing that takes time
        self._go_wrong("run")
        super().run(clock, update=update and self.options.fault != "no_update")

    def result(self) -> Result:
        self._go_wrong("result")
        return wrong_result(self.options.fault, super().result())

    def parameters(self) -> Parameters:
        self._go_wrong("parameters")
        return super().parameters()

    def last_loss(self) -> float:
        self._go_wrong("last_loss")
        return super().last_loss()

    def counters(self) -> Counters:
        self._go_wrong("counters")
        return super().counters()

    def moving_share(self) -> float | None:
        self._go_wrong("moving_share")
        return None

    def peak_memory_bytes(self) -> int | None:
        self._go_wrong("peak_memory_bytes")
        return None

    def forget_peak_memory(self) -> None:
        self._go_wrong("forget_peak_memory")

    def synchronize(self) -> None:
        self._go_wrong("synchronize")

    def in_force(self) -> dict[str, str]:
        self._go_wrong("in_force")
        return {}

    def versions(self) -> dict[str, str]:
        self._note("goes on")
        self._go_wrong("versions")
        return {"odd": "1.0"}

    def _go_wrong(self, method: str) -> None:
        if self.options.at == method:
            do(self.options.fault)

    def _note(self, what: str) -> None:
        if self.options.log is not None:
            with Path(self.options.log).open("a") as file:
                file.write(f"{what}, {os.getpid()}\n")


def do(fault: str | None) -> None:
    """Do what a fault says; nothing for one that is of results."""
    kind, _, detail = (fault or "").partition(":")
    if kind in DOINGS:
        DOINGS[kind](detail)


def _raise(detail: str) -> None:
    errors: dict[str, Exception] = {
        "value": ValueError("a fault\nover two lines"),
        "memory": MemoryError("no room for a tensor"),
        "enomem": OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        "unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a fault"),
        "stop": StopIteration(),
        "surrogate": RuntimeError("\udcff is no character"),
    }
    if detail == "numpy":
        np.empty(2**59)  # more than there are addresses: NumPy's own error
    raise errors[detail]


def _flood(detail: str) -> None:
    stream = {"stdout": 1, "stderr": 2}[detail]
    for _ in range(FLOOD_BYTES // 2**16):
        os.write(stream, (b"flood " * 2**14)[: 2**16])


def _detach(detail: str) -> None:
    """Leave a grandchild in a session of its own, which nobody waits for."""
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    sleeper = [sys.executable, "-c", f"import time; time.sleep({detail})"]
    subprocess.run([sys.executable, "-c", code, *sleeper], check=True, start_new_session=True)


def _loop(_: str) -> None:
    while True:
        pass


def _hog(_: str) -> None:
    blocks = []
    while True:
        blocks.append(np.ones(BLOCK))
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


DOINGS: dict[str, Callable[[str], None]] = {
    "raise": _raise,
    "exit": lambda detail: os._exit(int(detail)),
    "sys_exit": lambda detail: sys.exit(int(detail)),
    "signal": _signal,
    "flood": _flood,
    "detach": _detach,
    "loop": _loop,
    "wait": _wait,
    "stubborn": _stubborn,
    "hog": _hog,
}


def wrong_result(fault: str | None, found: Result) -> Result:
    """What a fault of results makes of a right one."""
    if fault == "wrong_loss":
        return replace(found, loss=found.loss * 1.01)
    if fault == "nan_loss":
        return replace(found, loss=float("nan"))
    if fault == "nan_outputs":
        return replace(found, outputs=np.full_like(found.outputs, np.nan))
    if fault == "wrong_outputs":
        return replace(found, outputs=found.outputs + 0.01)
    if fault == "few_outputs":
        return replace(found, outputs=found.outputs[:-1])
    if fault == "wrong_gradient":
        wrong = {name: value * 1.01 for name, value in found.gradients.items()}
        return replace(found, gradients=wrong)
    if fault == "no_gradients":
        return replace(found, gradients={})
    if fault == "nan_gradient":
        return replace(found, gradients={k: v * np.nan for k, v in found.gradients.items()})
    return found
