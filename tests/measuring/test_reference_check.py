"""Comparison with the reference: correct results pass, and wrong ones do not."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import ModelSizes, draw_initial_weights
from dynbatch.harness.contracts.system import Counters, Result, load_adapter
from dynbatch.harness.machine import folders
from dynbatch.harness.measuring.checks import reference
from dynbatch.harness.measuring.checks.reference import (
    MAX_CHECK_VERTICES,
    Reference,
    ReferenceAnswer,
    choose_check_instances,
    compute_reference,
    find_not_finite_origin,
)
from dynbatch.harness.measuring.checks.reference_check import (
    FLOAT32,
    SgdStep,
    check_answer,
    check_step,
    compare,
    compute_relative_error,
    find_nonzero_rows,
    find_step_fault,
    is_all_zero,
    is_within_tolerance,
)
from dynbatch.harness.models.gated_lattice_lstm import GatedLatticeLSTM
from dynbatch.harness.models.lattice_gru import LatticeGRU
from dynbatch.harness.models.tree_fc import TreeFC
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import build_run_settings, count_lookups, load_workload
from dynbatch.harness.vertex import Symbol, VertexTracer, exp, log, sqrt, tanh
from tests.support.engine_models import tree
from tests.support.instances import LATTICES, lattice
from tests.support.measured import MakeSpec
from tests.support.sketch_models import SIZES, Sketch, SketchModel

WAITING_S = 0.5  # a process that does not wait computes by then
rng = np.random.default_rng(0)
ANSWER = ReferenceAnswer(
    loss=12.5,
    outputs=rng.normal(size=(6, 5)),
    gradients={"W": rng.normal(size=(8, 4)), "b": rng.normal(size=4)},
    loss_after_step=12.4,
    outputs_after_step=rng.normal(size=(6, 5)),
)


def result(**changes: Any) -> Result:
    gradients = {name: value.astype(np.float32) for name, value in ANSWER.gradients.items()}
    values = {"loss": ANSWER.loss, "outputs": ANSWER.outputs.astype(np.float32)}
    return Result(**({**values, "gradients": gradients, "counters": Counters()} | changes))


def with_gradient(name: str, value: Any) -> Mapping[str, Any]:
    return {**result().gradients, name: value}


def test_float32_rounding_passes_and_is_reported() -> None:
    verdict = compare(result(), ANSWER)
    assert verdict.status == "ok"
    assert verdict.reason is None
    assert 0 < verdict.max_rel_err < 1e-6


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (result(loss=12.5 * 1.001), "loss"),
        (result(outputs=ANSWER.outputs * 1.001), "outputs"),
        (result(outputs=ANSWER.outputs[::-1]), "outputs"),
        (result(outputs=ANSWER.outputs * np.nan), "outputs"),
        (result(gradients=with_gradient("W", ANSWER.gradients["W"] * 0.999)), "gradient of W"),
        (result(gradients=with_gradient("b", np.zeros(4))), "gradient of b"),
        (result(gradients=with_gradient("b", np.full(4, np.nan))), "gradient of b"),
        (result(loss=float("inf")), "loss"),
        (result(gradients={"W": ANSWER.gradients["W"]}), "no gradient of b"),
        (result(gradients=with_gradient("W", ANSWER.gradients["W"].T)), "shape"),
    ],
)
def test_a_wrong_answer_fails_and_is_named(found: Result, named: str) -> None:
    verdict = compare(found, ANSWER)
    assert verdict.status == "failed"
    assert named in verdict.reason


def test_one_row_missing_from_a_large_sparse_gradient_fails() -> None:
    truth = np.zeros((1000, 8))
    truth[::20] = rng.normal(size=(50, 8))
    wrong = truth.copy()
    wrong[40] = 0.0
    assert is_within_tolerance(truth.astype(np.float32), truth)
    assert not is_within_tolerance(wrong, truth)


@pytest.mark.parametrize(
    ("value", "is_finite"), [(1e-3, True), (np.nan, False), (np.inf, False), (None, True)]
)
def test_rows_that_should_be_zero_are_looked_at(value: float | None, is_finite: bool) -> None:
    truth = np.zeros((1000, 4))
    truth[7] = 1.0
    answer = replace(ANSWER, gradients={"table": truth})
    found = truth.astype(np.float32)
    if value is not None:
        found[500, 2] = value
    verdict = compare(result(gradients={"table": found}), answer)
    assert verdict.is_finite == is_finite
    assert verdict.status == ("ok" if value is None else "failed")
    if value == 1e-3:
        assert verdict.max_rel_err == pytest.approx(1e-3)


class SaysItIsEqual(np.ndarray):
    def __ne__(self, other: object) -> Any:
        return np.zeros(self.shape, dtype=np.bool_)


@pytest.mark.parametrize("kind", [np.ndarray, SaysItIsEqual])
@pytest.mark.parametrize("row", [7, 500, None], ids=["looked up", "not looked up", "none"])
def test_a_step_may_change_no_other_row_of_a_table(row: int | None, kind: type[Any]) -> None:
    before = rng.normal(size=(1000, 4)).astype(np.float32)
    gradient = np.zeros((1000, 4))
    gradient[7] = 1.0
    after = before - np.float32(0.5) * gradient.astype(np.float32)
    if row is not None:
        after[row, 1] += np.float32(1e-3)
    n_lookups = {"table": np.bincount([7], minlength=1000)}
    step = SgdStep({"table": before}, {"table": gradient}, 0.5, n_lookups)
    system: Any = SimpleNamespace(parameters=lambda: {"table": after.view(kind)})
    assert (find_step_fault(system, step) is None) == (row is None)


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_zeros_change_no_verdict(seed: int) -> None:
    """The rule gives the same verdict on all rows, near its limit."""
    drawn = np.random.default_rng(seed)
    truth = np.zeros((50, 3))
    truth[drawn.integers(50, size=8)] = drawn.normal(size=(8, 3))
    noise = 10.0 ** drawn.uniform(-5, -3) * drawn.normal(size=truth.shape)
    found = truth + noise * (drawn.random(truth.shape) < 0.1)
    rows = find_nonzero_rows(found, truth)
    assert is_within_tolerance(found[rows], truth[rows]) == is_within_tolerance(found, truth)
    assert compute_relative_error(found[rows], truth[rows]) == compute_relative_error(found, truth)


@pytest.mark.parametrize("shape", [(), (0, 4), (4, 0), (5,)])
def test_arrays_of_any_shape_are_judged(shape: tuple[int, ...]) -> None:
    truth = np.ones(shape)
    rows = find_nonzero_rows(truth, truth)
    assert is_within_tolerance(truth[rows], truth[rows])
    assert np.array_equal(truth[rows], truth)


def test_flipped_relu_is_within_tolerance() -> None:
    truth = rng.normal(size=(512, 256))
    flipped = truth.copy()
    flipped[:, 3] += 1e-3 * rng.normal(size=512)  # one of 256 units in one of 1000 vertices
    assert np.max(np.abs(flipped - truth)) > 1e-4 * np.max(np.abs(truth))
    assert is_within_tolerance(flipped, truth)


def test_slack_covers_effect_of_flipped_relu() -> None:
    """The first unit of the lower vertex gets 1e-8: its ReLU's state matters far more."""
    model = TreeFC(ModelSizes(2, {"words": 3, "classes": 2}), variant="fold")
    trees = [tree([0, 1, -1, 2, -1], [-1, -1, 0, -1, 2], [-1, -1, 1, -1, 3])]
    weights = {
        "embedding": np.array([[0.5, 1.0], [1.0, 4e-8], [0.0, 1.0]]),
        "W": np.array([[1.0, 0.5], [0.5, 1.0], [-1.0, 0.25], [0.25, 1.0]]),
        "b": np.zeros(2),
    }
    on = compute_reference(model, weights, trees, "train", 0.1)
    off = compute_reference(model, weights | {"b": np.array([-2e-8, 0.0])}, trees, "train", 0.1)
    assert not is_within_tolerance(off.gradients["embedding"], on.gradients["embedding"])
    for name, truth in on.gradients.items():
        assert is_within_tolerance(off.gradients[name], truth, on.slack[name]), name
        assert not is_within_tolerance(off.gradients[name] * 1.01, truth, on.slack[name]), name


def test_slack_is_rounding_unless_a_relu_is_near_zero(make_spec: MakeSpec) -> None:
    answer = ask(make_spec())
    assert set(answer.slack) == set(answer.gradients)
    for name, slack in answer.slack.items():
        assert np.max(slack) < FLOAT32.array * np.max(np.abs(answer.gradients[name])), name
    assert ask(make_spec(model="tree_lstm")).slack == {}


def test_zeros_are_expected_where_the_truth_is_zero() -> None:
    assert is_within_tolerance(np.zeros(3), np.zeros(3))
    assert not is_within_tolerance(np.full(3, 1e-6), np.zeros(3))


def test_outputs_that_a_step_leaves_as_they_are_are_a_fault(make_spec: MakeSpec) -> None:
    found = check_all(make_spec(system_options={"fault": "stale_outputs"}, learning_rate=0.05))
    assert str(found).startswith("one step changes the outputs")


def check_all(spec: TrialSpec) -> str | None:
    """Return how a result or a step of the trial's system deviates, or None."""
    workload = load_workload(spec)
    system = load_adapter(spec.adapter)(build_run_settings(spec))
    system.prepare(workload.model, workload.weights)
    instances, answer = workload.check_instances, ask(spec)
    verdict = check_answer(system, instances, answer)
    rate = build_run_settings(spec).learning_rate
    n_rows = count_lookups(workload.model, instances)
    step = SgdStep(workload.weights, answer.gradients, rate, n_rows, answer.slack)
    return verdict.reason or check_step(system, instances, answer, step)


def test_rounding_larger_than_update_step_is_accepted(make_spec: MakeSpec) -> None:
    """Outputs that deviate by 1e-5 before the step may deviate as much after it."""
    spec = make_spec(system_options={"fault": "rounds"}, learning_rate=1e-8)
    answer = ask(spec)
    change = np.abs(answer.outputs_after_step - answer.outputs)
    assert np.max(change) < 1e-6 * np.max(answer.outputs)
    assert check_all(spec) is None


def ask(spec: TrialSpec, cache_dir: Path | None = None) -> ReferenceAnswer:
    cached = replace(spec, cache_dir=str(cache_dir) if cache_dir else None)
    return Reference(cached, load_workload(spec)).answer


def assert_same(one: ReferenceAnswer, other: ReferenceAnswer) -> None:
    np.testing.assert_equal(asdict(one), asdict(other))
    assert list(one.gradients) == list(other.gradients)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_reference_is_computed_once(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    spec = make_spec(mode=mode)
    first = ask(spec, tmp_path)
    assert (first.loss_after_step is None) == (mode == "infer")
    assert (first.outputs_after_step is None) == (mode == "infer")
    monkeypatch.setattr(reference, "compute_reference", None)
    assert_same(ask(spec, tmp_path), first)


@pytest.mark.parametrize("is_killed", [False, True])
def test_processes_wait_for_the_one_that_computes(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    go, may_end = os.pipe()  # not an Event, which a killed process may leave locked

    def compute(*given: Any) -> ReferenceAnswer:
        sender.send(os.getpid())
        os.read(go, 1)
        return compute_reference(*given)

    monkeypatch.setattr(reference, "compute_reference", compute)
    monkeypatch.setattr(folders, "MEMORY", tmp_path)
    spec = make_spec()
    first, second = (
        multiprocessing.Process(target=ask, args=(spec, tmp_path), daemon=True) for _ in range(2)
    )
    first.start()
    assert receiver.recv() == first.pid
    second.start()
    assert not receiver.poll(WAITING_S)
    if is_killed:
        first.kill()
        assert receiver.recv() == second.pid
    os.write(may_end, b"..")
    first.join(60)
    second.join(60)
    assert not receiver.poll()
    assert second.exitcode == 0


def test_other_weights_inputs_or_steps_have_other_answers(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    variants = [{}, {"seed": 1}, {"hidden_size": 9}, {"learning_rate": 0.1}, {"mode": "infer"}]
    for change in variants:
        ask(make_spec(**change), tmp_path)
    assert len(list(tmp_path.iterdir())) == len(variants)


def test_an_answer_of_zeros_proves_nothing() -> None:
    assert not is_all_zero(ANSWER)
    silent = replace(ANSWER, outputs=np.zeros((6, 5)), gradients={"W": np.zeros((8, 4))})
    assert is_all_zero(silent)
    assert not is_all_zero(replace(silent, outputs=ANSWER.outputs))


def test_instances_are_as_large_as_the_graphs_that_the_model_makes_of_them() -> None:
    model = LatticeGRU(SIZES)
    large = lattice([(k, k + 2) for k in range(399)], 402)
    assert len(choose_check_instances(model, [large] * 4, 4)) == 2
    assert len(choose_check_instances(model, [large] * 4, 1)) == 1
    assert len(choose_check_instances(model, LATTICES, 4)) == 4
    # The gated model joins words with the character's vertex, so more of them fit.
    some = lattice([(k, k + 2) for k in range(100)], 102)
    for kind, n in ((LatticeGRU, 3), (GatedLatticeLSTM, 5)):
        n_vertices = kind(SIZES).mini_batch([some]).graph.n_vertices
        assert len(choose_check_instances(kind(SIZES), [some] * 9, 9)) == n
        assert n * n_vertices <= MAX_CHECK_VERTICES < (n + 1) * n_vertices


def test_the_step_is_that_of_the_mean_over_instances(make_spec: MakeSpec) -> None:
    spec = make_spec(batch_size=8, learning_rate=0.4)
    assert build_run_settings(spec).learning_rate == pytest.approx(0.05)
    assert build_run_settings(replace(spec, batch_size=1)).learning_rate == 0.4


CHAIN = Sketch([("vertex", []), ("vertex", [0]), ("vertex", [1])])


class Odd(SketchModel):
    """Model whose vertices scatter the result of `wild` for a small vector."""

    vertex_types = ("vertex",)
    wild: Callable[[Symbol], Symbol]

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h)}

    def vertex(self, v: VertexTracer) -> None:
        x = tanh(v.lookup("embedding", v.pull("word")) @ v.parameter("W"))
        v.scatter(c=x, h=self.wild(x))


FINITE = "the reference is finite there; fix the system, not the model"


@pytest.mark.parametrize(
    ("wild", "mode", "origin"),
    [
        (lambda x: x, "train", FINITE),
        (lambda x: tanh(log(x)), "infer", "log of vertex is the first operator with a value that"),
        (lambda x: exp(exp(x + 4.0) + 40.0), "infer", "exp of vertex is the first operator with"),
        (lambda x: sqrt(x - x), "infer", FINITE),  # only its derivative is not finite
        (lambda x: sqrt(x - x), "train", "of gradient of vertex is the first operator with a"),
    ],
)
def test_the_first_operator_is_named(
    wild: Callable[[Symbol], Symbol], mode: str, origin: str
) -> None:
    built = type("Wild", (Odd,), {"wild": staticmethod(wild)})(SIZES)
    weights = draw_initial_weights(built, 0)
    assert origin in find_not_finite_origin(built, weights, [CHAIN], mode)
