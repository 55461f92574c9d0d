"""A program of two rounds as the DyNet adapter runs it, without DyNet: its work moves a clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from systems.on_dynet.rounds import Needed, Part, Round

NS = {"build": 1, "forward": 10, "read": 100, "backward": 1000, "update": 10_000}


class Machine:
    """What was done, in order, and the nanoseconds that it took."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.now_ns = 0

    def work(self, kind: str, name: str) -> None:
        self.done.append(f"{kind} {name}")
        self.now_ns += NS[kind]


class Expression:
    """Knows no more than its name and the number that it is."""

    def __init__(self, machine: Machine, name: str, number: float = 0.0) -> None:
        machine.work("build", name)
        self.machine, self.name, self.number = machine, name, number

    def forward(self) -> None:
        self.machine.work("forward", self.name)

    def backward(self) -> None:
        self.machine.work("backward", self.name)

    def scalar_value(self) -> float:
        return self.number

    def dim(self) -> tuple[tuple[int], int]:
        return (1,), 1

    def npvalue(self) -> list[float]:
        self.machine.work("read", self.name)
        return [self.number]


class Network:
    """Two instances: the first has one round, the second two."""

    def __init__(self, model: Any, store: Machine) -> None:
        self.machine = store

    def read(self, instance: str) -> str:
        return instance

    def build(self, instances: Sequence[str]) -> Iterator[Part]:
        add = partial(Expression, self.machine)
        yield Round(add("loss 0"), [add("score a0", 10.0), add("score b0", 20.0)])
        yield Round(add("loss 1"), [None, add("score b1", 21.0)])


class WaitingNetwork(Network):
    """Reads a value before it builds the only round that has a loss."""

    def build(self, instances: Sequence[str]) -> Iterator[Part]:
        value = Expression(self.machine, "value")
        yield Needed(value)
        value.npvalue()
        add = partial(Expression, self.machine)
        yield Round(add("loss"), [add("score a", 10.0), add("score b", 20.0)])


NETWORKS = {"fake": Network}


def runtime(machine: Machine) -> Any:
    """What the adapter needs of DyNet."""
    dy = SimpleNamespace(
        renew_cg=lambda: None,
        esum=lambda losses: Expression(machine, " + ".join(loss.name for loss in losses)),
    )
    trainer = SimpleNamespace(update=lambda: machine.work("update", "all"))
    return SimpleNamespace(dy=dy, ParameterStore=lambda weights: machine, sgd=lambda *_: trainer)
