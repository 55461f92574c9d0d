"""DyNet: graph segments and phases, decisions by values, batches of matmuls, wide lattices.

All systems are compared with the reference in test_systems_agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.contracts.system import RunSettings, load_adapter
from dynbatch.harness.measuring.checks.reference_check import compute_relative_error
from dynbatch.harness.measuring.clock import PhaseClock, Sample
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.paths import ROOT
from dynbatch.systems.on_dynet import autobatch, build
from dynbatch.systems.on_dynet.segments import GraphSegment, Needed, Part
from dynbatch.systems.plans.programs import grow_tree
from tests.support.fake_time import NullClock
from tests.support.instances import build as build_model
from tests.support.processes import end_python, run_python
from tests.support.run_adapter import CASES, UNEQUAL, Case, run_case, started, values_of

NATIVE = build.SOURCE_BUILDS["cpu"]
NO_DYNET = autobatch._explain_missing_dynet(autobatch.DynetOptions())
ON_DYNET = pytest.mark.skipif(NO_DYNET is not None, reason=str(NO_DYNET))
NOT_BUILT = build.explain_missing_build()
ON_BUILD = pytest.mark.skipif(NOT_BUILT is not None, reason=str(NOT_BUILT))


def result_of(function: str, *arguments: str, **environment: str) -> Any:
    """Call a function of this module in a new process, and return its result, sent as JSON."""
    program = f"""
import json, sys
from {__name__} import {function}
print(json.dumps({function}(*sys.argv[1:])))
"""
    printed = run_python("-c", program, *arguments, **environment)
    return json.loads(printed.splitlines()[-1])


NS = {"build": 1, "forward": 10, "read": 100, "backward": 1000, "update": 10_000}


class Machine:
    """Log of operations, in order, with a clock that they advance by fixed nanoseconds."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.now_ns = 0

    def work(self, kind: str, name: str) -> None:
        self.done.append(f"{kind} {name}")
        self.now_ns += NS[kind]


class Expression:
    """Expression with only a name and a value."""

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
    """Network of two instances: the first has one graph segment, the second two."""

    def __init__(self, model: Any, store: Machine) -> None:
        self.machine = store

    def read(self, instance: str) -> str:
        return instance

    def build(self, instances: Sequence[str]) -> Iterator[Part]:
        add = partial(Expression, self.machine)
        yield GraphSegment(add("loss 0"), [add("score a0", 10.0), add("score b0", 20.0)])
        yield GraphSegment(add("loss 1"), [None, add("score b1", 21.0)])


class WaitingNetwork(Network):
    """Network that reads a value before it builds the only segment with a loss."""

    def build(self, instances: Sequence[str]) -> Iterator[Part]:
        value = Expression(self.machine, "value")
        yield Needed(value)
        value.npvalue()
        add = partial(Expression, self.machine)
        yield GraphSegment(add("loss"), [add("score a", 10.0), add("score b", 20.0)])


NETWORKS = {"fake": Network}


def runtime(machine: Machine) -> Any:
    """Return a replacement of DyNet with the functions that the adapter uses."""
    dy = SimpleNamespace(
        renew_cg=lambda: None,
        esum=lambda losses: Expression(machine, " + ".join(loss.name for loss in losses)),
    )
    trainer = SimpleNamespace(update=lambda: machine.work("update", "all"))
    return SimpleNamespace(
        dy=dy, ParameterStore=lambda weights: machine, make_trainer=lambda *_: trainer
    )


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def system(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> autobatch.Adapter:
    monkeypatch.setitem(autobatch.NETWORKS, "instance", f"{__name__}:NETWORKS")
    monkeypatch.setattr(autobatch, "_import_dynet", lambda *_: runtime(machine))
    adapter = autobatch.Adapter(RunSettings("train", "cpu", 1, 2, 0.1, 0))
    adapter.prepare(SimpleNamespace(name="fake"), {})
    adapter.load(["a", "b"])
    return adapter


def run(system: autobatch.Adapter, machine: Machine) -> Sample:
    clock = PhaseClock(lambda: None, lambda: machine.now_ns)
    clock.start()
    system.run(clock)
    return clock.stop()


def test_a_segment_is_evaluated_before_the_next_is_built_and_not_read(
    system: autobatch.Adapter, machine: Machine
) -> None:
    """Also, phases of all segments add up."""
    sample = run(system, machine)
    assert machine.done == [
        *("build loss 0", "build score a0", "build score b0", "forward loss 0"),
        *("build loss 1", "build score b1", "forward loss 1"),
        *("build loss 0 + loss 1", "forward loss 0 + loss 1"),
        *("backward loss 0 + loss 1", "update all"),
    ]
    found_ns = {phase: round(seconds * 1e9) for phase, seconds in sample.phases_s.items()}
    assert found_ns == {"construct": 6, "forward": 30, "backward": 1000, "update": 10_000}
    assert round(sample.total_s * 1e9) == sum(found_ns.values())


def test_requested_value_is_computed_before_program_continues(
    system: autobatch.Adapter, machine: Machine
) -> None:
    """The value is not in the loss or in the outputs, because its segment has neither."""
    system.settings = RunSettings("infer", "cpu", 1, 2, 0.1, 0)
    system._network = WaitingNetwork(None, machine)
    sample = run(system, machine)
    assert machine.done == [
        *("build value", "forward value", "read value"),
        *("build loss", "build score a", "build score b", "forward loss"),
    ]
    found_ns = {phase: round(seconds * 1e9) for phase, seconds in sample.phases_s.items()}
    assert (found_ns["construct"], found_ns["forward"]) == (4 + 100, 20)
    assert system.result().outputs.tolist() == [[10.0], [20.0]]


PROGRAMS = ("birnn", "stack_rnn", "nested_rnn", "berxit", "drnn")


def count_waits(name: str, **options: str) -> int:
    """Count the parts of a program that are evaluated without a loss."""
    system = started(autobatch.Adapter, CASES[name].model, "infer", **options)
    system.load(CASES[name].instances)
    build, parts = system._network.build, []

    def noted(instances: Any) -> Any:
        for part in build(instances):
            parts.append(part)
            yield part

    system._network.build = noted
    system.run(NullClock())
    return sum(isinstance(part, Needed) for part in parts)


def count_all_waits() -> dict[str, int]:
    """Count waits of all programs, and for DRNN also with breadth-first growth."""
    found = {name: count_waits(name) for name in PROGRAMS}
    return found | {"drnn together": count_waits("drnn", branches="together")}


@pytest.mark.dynet
@ON_DYNET
def test_a_wait_for_each_segment_of_the_graph() -> None:
    """DRNN's last wait finds that no node grows, and is not followed by a segment.

    A recursion waits for each node of the largest tree.
    """
    n_waits = result_of("count_all_waits")
    for name in ("birnn", "stack_rnn", "nested_rnn"):
        assert n_waits[name] == n_segments(name) - 1, name
    assert n_waits["drnn together"] == n_segments("drnn")
    model = CASES["berxit"].model
    longest = max(map(model.count_layers, CASES["berxit"].instances))
    assert n_waits["berxit"] == min(longest, model.layers - 1) > 1, "nobody waits at the last layer"
    model, sentences = CASES["drnn"].model, CASES["drnn"].instances
    most = max(len(grow_tree(model, sentence).nodes) for sentence in sentences)
    assert n_waits["drnn"] == most > n_waits["drnn together"]


def n_segments(name: str) -> int:
    segments = CASES[name].model.mini_batch(CASES[name].instances).graph.segments
    return 1 if segments is None else int(segments.max()) + 1


@pytest.mark.dynet
@ON_BUILD
@pytest.mark.parametrize(
    ("patches", "batches"),
    [
        pytest.param((), [6] + [1] * 6, id="DyNet"),
        pytest.param((str(NATIVE / build.PRODUCT_SIGNATURE),), [6, 6], id="patched"),
    ],
)
def test_products_of_computed_matrices(patches: tuple[str, ...], batches: list[int]) -> None:
    """Six matmuls have one parameter as left factor, and six have computed matrices."""
    program = "tests/support/dynet_batches.py"
    folders = f"{NATIVE}:{ROOT}"
    done = end_python(program, "1", "products", *patches, PYTHONPATH=folders)
    assert done.returncode == 0, done.stderr
    sizes = re.findall(r"BatchSize:(\d+) a \* a\n", done.stdout + done.stderr)
    assert [int(size) for size in sizes] == batches


CPP = "dynbatch.systems.on_dynet.cpp.adapter"
LATTICES = {
    "dynbatch.systems.on_dynet.autobatch": {"lattice_lstm", "lattice_gru"},
    CPP: {"lattice_lstm"},
}


WIDE = ModelSizes(130, UNEQUAL.data, embedding_size=5)


def wide_errors(module: str, options: str) -> dict[str, float]:
    """Return the largest relative error of every model that a system runs."""
    adapter, found = load_adapter(module), {}
    for name in ("lattice_lstm", "lattice_gru"):
        case = Case(build_model(name, WIDE), (1, 7, 2), 0.1, scale=1.0)
        results = run_case(adapter, case, "cpu", json.loads(options))
        if "skip" not in results:
            truth = run_reference(case.model, case.weights, case.instances, "train")
            found[name] = max(
                compute_relative_error(results[f"first/{key}"], value)
                for key, value in values_of(truth).items()
            )
    return found


@pytest.mark.slow
@pytest.mark.dynet
@ON_BUILD
@pytest.mark.parametrize("adapter", LATTICES)
@pytest.mark.parametrize(
    "options", [{"autobatch": "agenda"}, {"autobatch": "depth"}, {"profile": True}], ids=str
)
def test_wide_lattices_agree_with_the_reference(adapter: str, options: dict[str, Any]) -> None:
    """Also while copies are timed, that is with profile=true."""
    options = options | ({} if adapter == CPP else {"build": "source"})
    worst = result_of("wide_errors", adapter, json.dumps(options), OMP_NUM_THREADS="1")
    assert set(worst) == LATTICES[adapter]
    assert max(worst.values()) < 1e-4, worst


def moved_fractions(module: str, autobatch: str, profile: str) -> list[float | None]:
    """Return the fraction of a training pass that copied operands of batches, read twice."""
    options = {"autobatch": autobatch, "profile": bool(profile)}
    options |= {} if module == CPP else {"build": "source"}
    system = started(load_adapter(module), CASES["lattice_lstm"].model, **options)
    system.load(CASES["lattice_lstm"].instances)
    system.run(NullClock())
    return [system.data_movement_fraction() for _ in range(2)]


@pytest.mark.slow
@pytest.mark.dynet
@ON_BUILD
@pytest.mark.parametrize("adapter", LATTICES)
def test_copies_of_batches_are_timed_on_request(adapter: str) -> None:
    moved, rest = result_of("moved_fractions", adapter, "agenda", "profile")
    assert 0 < moved < 1
    assert rest is None  # no pass since the last call
    assert result_of("moved_fractions", adapter, "agenda", "") == [None, None]
    assert result_of("moved_fractions", adapter, "off", "profile") == [None, None]  # no batches


def test_the_hash_of_the_sources_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text("int a;")
    first = build.hash_sources(tmp_path)
    (tmp_path / "a.cc").write_text("int b;")
    second = build.hash_sources(tmp_path)
    (tmp_path / "a.cc").rename(tmp_path / "b.cc")
    assert len({first, second, build.hash_sources(tmp_path)}) == 3
