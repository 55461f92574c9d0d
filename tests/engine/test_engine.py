"""The engine against the oracle: whatever the model, switches, policy and granularity, the numbers
are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

from harness.contracts.model import Model, Weights, initial_weights
from harness.contracts.system import PHASES, RunSettings
from harness.engine.switches import Switches
from harness.errors import ConfigError
from harness.oracle import ReferenceResult, run_reference
from systems.on_core.vertex import Adapter
from tests.support.engine_models import EXAMPLES, GRANULARITIES
from tests.support.engine_runs import (
    POLICIES,
    NoClock,
    all_switches,
    disagreements,
    prepared,
    run,
)

PLAIN = Switches(backend="stepwise")
BOTH = pytest.mark.parametrize("backend", ["stepwise", "compiled"])
OPERATORS_SLOW = [
    pytest.param(*one, marks=pytest.mark.slow if one[1] == "operator" else ())
    for one in GRANULARITIES
]


def _example(name: str) -> tuple[Model, list[Any], Weights]:
    model, instances = EXAMPLES[name]
    # Larger than the models' own, so that no gate is almost linear and no gradient vanishes.
    weights = {k: np.float32(2.0) * w for k, w in initial_weights(model, 7).items()}
    return model, instances, weights


@cache
def _oracle(name: str) -> ReferenceResult:
    """Of training an example; to be read and not to be changed."""
    model, instances, weights = _example(name)
    return run_reference(model, weights, instances, "train")


@pytest.mark.parametrize(("name", "granularity"), OPERATORS_SLOW)
def test_every_switch_agrees_with_the_oracle(name: str, granularity: str) -> None:
    model, instances, weights = _example(name)
    for switches, policy in zip(all_switches(granularity), cycle(POLICIES), strict=False):
        result = run(prepared(model, weights, switches, policy), instances)
        assert disagreements(result, _oracle(name)) == [], (switches, policy)


def test_what_passes_run_is_compiled_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model, instances, weights = _example("tree_lstm")
    loaded: list[int] = []
    adapter = prepared(model, weights)
    monkeypatch.setattr(adapter, "load", _noted(loaded, adapter.load))
    assert adapter.n_compilations() == 0
    for _ in range(4):
        adapter.compile_for(instances)
    n_programs = adapter.n_compilations()
    assert n_programs
    assert len(loaded) == 2, "the second met nothing new"
    for name, value in adapter.parameters().items():
        np.testing.assert_array_equal(value, weights[name], err_msg=name)
    run(adapter, instances, update=True)
    assert adapter.n_compilations() == n_programs


def _noted(calls: list[int], function: Callable[[Sequence[Any]], None]) -> Callable[..., None]:
    def noted(instances: Sequence[Any]) -> None:
        calls.append(len(instances))
        function(instances)

    return noted


def test_a_backend_that_compiles_nothing_says_so() -> None:
    model, instances, weights = _example("tree_lstm")
    adapter = prepared(model, weights, PLAIN)
    adapter.compile_for(instances)
    assert adapter.n_compilations() is None


@pytest.mark.parametrize(("name", "granularity"), GRANULARITIES)
def test_every_policy_agrees_with_the_oracle(name: str, granularity: str) -> None:
    model, instances, weights = _example(name)
    for policy, layout in product(POLICIES, ("read_order", "policy")):
        switches = replace(PLAIN, granularity=granularity, layout=layout)
        result = run(prepared(model, weights, switches, policy), instances)
        assert disagreements(result, _oracle(name)) == [], (policy, layout)


@pytest.mark.parametrize("name", EXAMPLES)
def test_torchs_operators_agree_with_the_oracle_under_every_switch(name: str) -> None:
    """What runs on CUDA, too: the same code and no other."""
    model, instances, weights = _example(name)
    oracle = run_reference(model, weights, instances, "train")
    for switches in all_switches("vertex"):
        if not switches.fusion and switches.loop == "python":
            stepwise = replace(switches, backend="stepwise")
            assert disagreements(run(prepared(model, weights, stepwise), instances), oracle) == []


def test_disagreements_are_noticed() -> None:
    model, instances, weights = _example("tree_lstm")
    oracle = run_reference(model, weights, instances, "train")
    changed = weights | {"F_1": weights["F_1"] * np.float32(1.01)}
    found = disagreements(run(prepared(model, changed, PLAIN), instances), oracle)
    assert {"outputs", "F_1", "F_2", "U"} <= set(found)


@pytest.mark.parametrize("name", EXAMPLES)
@BOTH
def test_buffers_are_reused_by_mini_batches_of_any_size(name: str, backend: str) -> None:
    model, instances, weights = _example(name)
    # Growing, shrinking, one instance, and types that are absent from some mini-batches or new.
    parts = (instances[1:2], instances, instances * 3, instances[:1], instances[::-1])
    oracles = [run_reference(model, weights, part, "train") for part in parts]
    # Where tanh is nearly 1, its own few roundings are many of 1 - tanh^2.
    tolerance = {"stepwise": 2e-5, "compiled": 2e-4}[backend]
    for granularity, lazy in product(("vertex", "operator"), (True, False)):
        switches = Switches(backend=backend, granularity=granularity, lazy_batching=lazy)
        adapter = prepared(model, weights, switches)
        for part, oracle in zip(parts, oracles, strict=True):
            wrong = disagreements(run(adapter, part), oracle, tolerance)
            assert wrong == [], (granularity, lazy, len(part))


@pytest.mark.parametrize("name", EXAMPLES)
@BOTH
def test_a_batch_equals_its_instances_one_by_one(name: str, backend: str) -> None:
    model, instances, weights = _example(name)
    adapter = prepared(model, weights, Switches(backend=backend))
    whole = run(adapter, instances)
    parts = [run(adapter, [one]) for one in instances]
    np.testing.assert_allclose(whole.loss, sum(part.loss for part in parts), rtol=1e-5)
    np.testing.assert_allclose(
        whole.outputs, np.concatenate([part.outputs for part in parts]), rtol=1e-4, atol=1e-6
    )
    for key, gradient in whole.gradients.items():
        total = sum(part.gradients[key] for part in parts)
        np.testing.assert_allclose(gradient, total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "granularity"), GRANULARITIES)
def test_inference_computes_the_loss_of_training(name: str, granularity: str) -> None:
    model, instances, weights = _example(name)
    trained = run(prepared(model, weights, PLAIN), instances)
    switches = replace(PLAIN, granularity=granularity)
    adapter = prepared(model, weights, switches, mode="infer")
    inferred = run(adapter, instances)
    np.testing.assert_allclose(inferred.loss, trained.loss, rtol=1e-6)
    np.testing.assert_allclose(inferred.outputs, trained.outputs, rtol=1e-5, atol=1e-6)
    assert inferred.gradients == {}


@pytest.mark.parametrize("name", ["tree_lstm", "two_pulls", "child_sum"])
@pytest.mark.parametrize("lazy", [True, False])
@BOTH
def test_update_is_one_step_of_sgd(name: str, lazy: bool, backend: str) -> None:
    model, instances, weights = _example(name)
    adapter = prepared(model, weights, Switches(backend=backend, lazy_batching=lazy))
    gradients = run(adapter, instances, update=True).gradients
    for key, weight in weights.items():
        expected = weight - np.float32(adapter.settings.learning_rate) * gradients[key]
        after = adapter.engine.backend.weights()[key]
        np.testing.assert_allclose(after, expected, rtol=1e-6, atol=1e-6)
        assert np.any(gradients[key] != 0), key


@BOTH
def test_several_steps_follow_the_oracle(backend: str) -> None:
    model, instances, weights = _example("tree_lstm")
    adapter = prepared(model, weights, Switches(backend=backend))
    expected = {k: w.astype(np.float64) for k, w in weights.items()}
    for step in range(5):
        part: Sequence[Any] = instances[step % 3 :]
        oracle = run_reference(model, expected, part, "train")
        assert disagreements(run(adapter, part, update=True), oracle) == []
        expected = {k: w - 0.1 * oracle.gradients[k] for k, w in expected.items()}


def test_weights_given_to_prepare_are_left_alone() -> None:
    model, instances, weights = _example("tree_lstm")
    before = {key: weight.copy() for key, weight in weights.items()}
    run(prepared(model, weights, PLAIN), instances, update=True)
    for key, weight in weights.items():
        np.testing.assert_array_equal(weight, before[key])


@pytest.mark.parametrize("granularity", ["vertex", "operator"])
@BOTH
def test_only_rows_that_were_looked_up_change(granularity: str, backend: str) -> None:
    model, instances, weights = _example("tree_lstm")
    adapter = prepared(model, weights, Switches(backend=backend, granularity=granularity))
    run(adapter, instances[1:2], update=True)  # one leaf, word 5
    after = adapter.engine.backend.weights()["embedding"]
    changed = np.flatnonzero((after != weights["embedding"]).any(axis=1))
    assert changed.tolist() == [5]


@pytest.mark.parametrize(("mode", "n_phases"), [("train", 5), ("infer", 3)])
def test_phases_are_marked_in_order(mode: str, n_phases: int) -> None:
    model, instances, weights = _example("tree_lstm")
    adapter, clock = prepared(model, weights, PLAIN, mode=mode), NoClock()
    adapter.load(instances)
    adapter.run(clock)
    assert clock.phases == list(PHASES[:n_phases])


def test_an_unknown_switch_is_named_with_the_known_ones() -> None:
    settings = RunSettings("train", "cpu", 1, 1, 0.1, 0, options={"fussion": True})
    with pytest.raises(
        ConfigError, match=r"system.options.fussion .* it takes granularity, .* policy"
    ):
        Adapter(settings)
