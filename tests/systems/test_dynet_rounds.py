"""The DyNet adapter and programs of several rounds: order, phases and outputs, without DyNet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.contracts.system import RunSettings
from harness.measuring.clock import PhaseClock, Sample
from systems.on_dynet import autobatch
from tests.support import fake_dynet_program as fake
from tests.support.fake_dynet_program import Machine, WaitingNetwork, runtime


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def system(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> autobatch.Adapter:
    monkeypatch.setitem(autobatch.NETWORKS, "instance", f"{fake.__name__}:NETWORKS")
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


def test_a_round_is_evaluated_before_the_next_is_built_and_not_read(
    system: autobatch.Adapter, machine: Machine
) -> None:
    run(system, machine)
    assert machine.done == [
        *("build loss 0", "build score a0", "build score b0", "forward loss 0"),
        *("build loss 1", "build score b1", "forward loss 1"),
        *("build loss 0 + loss 1", "forward loss 0 + loss 1"),
        *("backward loss 0 + loss 1", "update all"),
    ]


def test_phases_of_all_rounds_add_up(system: autobatch.Adapter, machine: Machine) -> None:
    sample = run(system, machine)
    found_ns = {phase: round(seconds * 1e9) for phase, seconds in sample.phases_s.items()}
    assert found_ns == {"construct": 6, "forward": 30, "backward": 1000, "update": 10_000}
    assert round(sample.total_s * 1e9) == sum(found_ns.values())


def test_outputs_are_in_the_order_of_instances(system: autobatch.Adapter, machine: Machine) -> None:
    system.settings = RunSettings("infer", "cpu", 1, 2, 0.1, 0)
    run(system, machine)
    assert system.result().outputs.tolist() == [[10.0], [20.0], [21.0]]


def test_a_needed_value_is_computed_before_the_program_goes_on(
    system: autobatch.Adapter, machine: Machine
) -> None:
    """It is no round of its own: nothing of it is in the loss or in the outputs."""
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
