"""Contract of a backend, for all backends and for a double that records its use.

A new backend in harness/engine/backends/ is found by name and tested here without other changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.engine import engine
from dynbatch.harness.engine.backend import Backend, choose_backend, list_backends, load_backend
from dynbatch.harness.engine.lowering.plan import Abilities
from dynbatch.harness.engine.rows.segments import ALL_ROWS
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError, UnsupportedTrial
from dynbatch.harness.reference import run_reference
from dynbatch.harness.vertex.operators import OPERATORS
from tests.support.engine_models import BINARY
from tests.support.engine_runs import CountingBackend, Setting, disagreements, prepared, run
from tests.support.instances import lattice
from tests.support.sketch_models import SIZES, PushesPart, ShiftedParts, Sketch
from tests.support.walked_backend import WalkedBackend

Patch = pytest.MonkeyPatch
DOUBLES = {"counting": CountingBackend, "walked": WalkedBackend}
KINDS = {**{name: load_backend(name) for name in list_backends()}, **DOUBLES}
# Few models of different kinds, because each takes seconds in Triton's interpreter:
# test_against_reference.py and test_interpreted_kernels.py have all models.
NAMES = ("tree_lstm", "mv_rnn", "matrix_sum", "child_sum", "several_widths")
BY_OPERATOR = {"granularity": "operator"}
OF_ENCODERS = {"score_heads", "mix_heads", "softmax", "layer_norm"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[Backend]:
    """Return a backend class that can run here."""
    found = KINDS[request.param]
    if found.explain_unavailable(Switches(), "cpu") is not None:
        pytest.skip(f"{request.param} cannot run here")
    return found


# --- abilities and facts ---


def test_every_backend_runs_every_operator(kind: type[Backend]) -> None:
    """The engine chooses another backend if one does not have the operators of encoders."""
    assert kind.abilities.operators in (set(OPERATORS), set(OPERATORS) - OF_ENCODERS)


def test_an_operator_without_a_kernel_is_named(kind: type[Backend], monkeypatch: Patch) -> None:
    few = kind.abilities.operators - {"tanh"}
    monkeypatch.setattr(kind, "abilities", replace(kind.abilities, operators=few))
    with pytest.raises(UnsupportedTrial, match="needs tanh, but this backend has no kernel"):
        Setting("tree_lstm", kind=kind)


def test_switches_in_force_are_those_it_honours(kind: type[Backend]) -> None:
    backend = Setting("tree_lstm", Switches(fusion=True), kind).backend
    assert backend.switches.fusion == kind.abilities.fuses
    assert not Setting("tree_lstm", Switches(fusion=False), kind).backend.switches.fusion
    assert backend.facts()["backend"] in list_backends()


def test_abilities_without_fusion_read_no_children() -> None:
    with pytest.raises(ValueError, match="only fused kernels"):
        Abilities(frozenset(), reads_children=True)


def test_unknown_backend_lists_available_ones() -> None:
    with pytest.raises(ConfigError, match="backend=cude is unknown; choose one of auto, compiled"):
        choose_backend(Switches(backend="cude"), "cpu")


def test_a_device_takes_the_first_backend_that_can(monkeypatch: Patch) -> None:
    """The engine also reports why it did not choose the first one."""

    def hinder(name: str, reason: str | None) -> None:
        monkeypatch.setattr(
            load_backend(name), "explain_unavailable", classmethod(lambda *_: reason)
        )

    for name in list_backends():
        hinder(name, None)
    stepwise = load_backend("stepwise")
    assert choose_backend(Switches(), "cuda") == (load_backend("cuda"), "")
    lacking = "backend=cuda: it has no kernel for softmax; use backend=stepwise"
    assert choose_backend(Switches(), "cuda", ["tanh", "softmax"]) == (stepwise, lacking)
    hinder("cuda", "no such GPU")
    assert choose_backend(Switches(), "cuda") == (stepwise, "backend=cuda: no such GPU")
    hinder("stepwise", "no torch")
    with pytest.raises(UnsupportedTrial, match="no such GPU; backend=stepwise: no torch"):
        choose_backend(Switches(), "cuda")


@pytest.mark.parametrize("switches", [{}, {"backend": "stepwise"}], ids=str)
def test_a_backend_without_a_second_stream_is_refused(switches: dict[str, str]) -> None:
    asked = Switches(hoisting="stream", **switches)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedTrial, match="no second stream; use hoisting=true, or"):
        choose_backend(asked, "cpu")


def test_a_second_stream_copies_no_parameters() -> None:
    cuda, asked = load_backend("cuda"), {"layout": "pq", "hoisting": "stream"}
    assert "needs layout=read_order or policy" in (
        cuda.explain_unavailable(Switches(fusion=False, **asked), "cuda") or ""
    )


def test_record_explains_the_skipped_backend(monkeypatch: Patch) -> None:
    assert "instead_of" not in Setting("tree_lstm").engine.facts()
    chosen = KINDS["compiled"], "backend=cuda: busy"
    monkeypatch.setattr(engine, "choose_backend", lambda *_: chosen)
    assert Setting("tree_lstm").engine.facts()["instead_of"] == "backend=cuda: busy"


@pytest.mark.parametrize("name", ["seq2seq", "parser"])
def test_segments_in_one_call_do_what_they_do_one_by_one(name: str, monkeypatch: Patch) -> None:
    kind = KINDS["compiled"]
    settings = [Setting(name, kind=kind) for _ in range(2)]
    at_once = settings[0].train(settings[0].instances)
    monkeypatch.setattr(kind, "run_segments", Backend.run_segments)
    np.testing.assert_allclose(settings[1].train(settings[1].instances), at_once, rtol=1e-6)
    assert len(settings[1].engine.arrangement.segments) > 1
    gradients = [setting.backend.gradients() for setting in settings]
    for key, gradient in gradients[1].items():
        np.testing.assert_allclose(gradient, gradients[0][key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*NAMES, "two_pulls", "seq2seq"])
def test_every_step_agrees_with_the_reference(kind: type[Backend], name: str) -> None:
    """Cached parameters and addresses are valid for one mini-batch, that is one step of SGD."""
    if kind is KINDS["cuda"] and name not in NAMES:
        pytest.skip("Triton's interpreter takes long; NumPy walks the others")
    setting = Setting(name, kind=kind)
    given = {key: weight.copy() for key, weight in setting.weights.items()}
    instances = setting.instances
    # A step saturates mv_rnn, whose gradients are then too small for float32.
    compare = setting.wrong if name == "mv_rnn" else setting.step
    for part in (instances[1:2], instances * 2, instances):  # buffers are reallocated or reused
        assert compare(part) == []
        np.testing.assert_equal(setting.weights, given)


def test_several_values_may_be_pushed(kind: type[Backend]) -> None:
    setting = Setting("tree_lstm", kind=kind)
    setting.train(setting.instances)
    once = setting.engine.outputs()
    plan = setting.engine.plans[-1]
    setting.engine.plans[-1] = replace(plan, pushes=plan.pushes * 2)
    np.testing.assert_array_equal(setting.engine.outputs(), np.concatenate([once, once], axis=1))


@pytest.mark.parametrize("model", [PushesPart(SIZES), ShiftedParts(SIZES)], ids=lambda m: m.name)
@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("backend", list_backends())
def test_parts_of_a_value_are_pushed_and_added(backend: str, lazy: bool, model: Model) -> None:
    """The pushed slice is of a value that only its own stage reads; a result may overwrite it."""
    weights = draw_initial_weights(model, 7)
    switches = Switches(backend=backend, lazy_batching=lazy)
    if (reason := load_backend(backend).explain_unavailable(switches, "cpu")) is not None:
        pytest.skip(reason)
    for mode in ("infer", "train"):
        reference = run_reference(model, weights, BINARY, mode)
        result = run(prepared(model, weights, switches, mode=mode), BINARY)
        assert disagreements(result, reference) == [], mode


@pytest.mark.parametrize(
    ("asked", "name", "train", "in_effect"),
    [
        ({"fold_tables": True}, "fold_tables", True, "false"),
        ({"fold_tables": True}, "fold_tables", False, "true"),
        (BY_OPERATOR, "hoisting", True, "false"),
        (BY_OPERATOR | {"fold_tables": True}, "fold_tables", False, "false"),
        (BY_OPERATOR | {"deduplicate_inputs": True}, "deduplicate_inputs", True, "false"),
        (BY_OPERATOR, "outputs", True, "vertices"),
        ({"layout": "pq"}, "layout", True, "policy"),
        ({"layout": "pq", "fusion": False}, "layout", True, "pq"),
    ],
)
def test_switches_without_effect_are_not_effective(
    asked: dict[str, Any], name: str, train: bool, in_effect: str
) -> None:
    assert Switches(**asked).resolve_effective(train=train).format_values()[name] == in_effect


def test_a_type_may_be_missing_from_a_mini_batch(kind: type[Backend]) -> None:
    setting = Setting("lattice_lstm", kind=kind)
    characters_only = [lattice([], 5, seed=9)]
    for mini_batch in (characters_only, setting.instances[:1], characters_only):
        assert setting.wrong(mini_batch) == []
    types = setting.engine.arrangement.types
    assert 0 < len(types) < len(setting.engine.plans)
    assert len(types) == len(list(types)) == len(types.items())
    absent = set(setting.engine.plans) - set(types)
    assert all(types.get(type_id) is None for type_id in (*absent, 99, -9))
    assert all(geometry.n_rows > 0 for geometry in types.values())


def test_edges_may_become_more_without_more_rows(kind: type[Backend]) -> None:
    if kind is KINDS["cuda"]:
        pytest.skip("Triton's interpreter does not notice rows past the end of an array")
    setting = Setting("child_sum", kind=kind)
    alone, leaves = Sketch([("vertex", [])]), [("vertex", list[int]())] * 20
    assert setting.wrong([alone] * 21) == []
    assert setting.wrong([Sketch([*leaves, ("vertex", list(range(20)))], read=(20,))]) == []


# --- use and counters ---


def test_the_engine_makes_one_call_a_stage() -> None:
    setting = Setting("tree_lstm", kind=CountingBackend)
    backend = setting.backend
    assert backend.calls["load"] == 1
    for _ in range(3):
        setting.train(setting.instances)
    assert backend.calls["compile"] == 2, "outputs, and all functions with the first mini-batch"
    plans = setting.engine.plans.values()
    for stage in ("eager", "batch", "lazy"):  # no call without steps
        n_calls = 3 if any(plan.steps[stage] for plan in plans) else 0
        assert backend.calls[f"run {stage}"] == n_calls, stage
    assert backend.calls["run batch"] == backend.calls["run lazy"] == 3
    assert backend.calls["run backward"] == backend.calls["run backward_lazy"] == 3
    assert backend.calls["arrange"] == backend.calls["clear_gradients"] == 3
    forward = [(t, b) for stage, t, b in backend.batches if stage == "batch"]
    backward = [(t, b) for stage, t, b in backend.batches if stage == "backward"]
    assert len(forward) == 3 * (len(setting.engine.arrangement.types.batches) + 1)
    assert backward[: len(backward) // 3] == forward[: len(forward) // 3][::-1]
    whole = {b for stage, _, b in backend.batches if stage in ("eager", "lazy", "backward_lazy")}
    assert whole == {ALL_ROWS}
