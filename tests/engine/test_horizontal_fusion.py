"""Joined matmuls that share an input: fewer steps, never more, and the same results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import (
    Model,
    ModelSizes,
    draw_initial_weights,
    trace_functions,
)
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.lowering.fusion import find_shared_inputs, join_groups
from dynbatch.harness.engine.lowering.lower import lower
from dynbatch.harness.engine.lowering.plan import STAGES, MatmulStep, Plan, SoftmaxLossStep
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.models.berxit import Berxit
from dynbatch.harness.models.birnn import BiRNN
from dynbatch.harness.models.drnn import DRNN
from dynbatch.harness.models.mv_rnn import MVRNN
from dynbatch.harness.models.nested_rnn import NestedRNN
from dynbatch.harness.models.stack_rnn import StackRNN
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.reference import run_reference
from dynbatch.harness.vertex import VertexTracer, sum_elements, tanh
from tests.support.engine_models import CHAINS, example
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.random_programs import RandomModel, models, sketches
from tests.support.sketch_models import SIZES, ChainLSTM, GatesApart, SketchModel
from tests.support.sketches import Sketch

ON, OFF = Switches(horizontal_fusion=True), Switches()
BACKENDS = ("compiled", "stepwise")


def plan_of(model: Model, function: str, switches: Switches = ON, *, train: bool = True) -> Plan:
    return lower(trace_functions(model)[function], switches, Backend.abilities, train)


def n_steps(plan: Plan) -> dict[str, int]:
    return {stage: len(plan.list_steps(stage)) for stage in STAGES}


def products(plan: Plan) -> list[str]:
    steps = [step for stage in STAGES for step in plan.list_steps(stage)]
    return [step.parameter for step in steps if isinstance(step, MatmulStep)]


# --- gates ---


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("function", ["first", "step"])
def test_gates_apart_are_planned_as_gates_that_the_model_joined(
    function: str, fusion: bool
) -> None:
    switches = replace(ON, fusion=fusion)
    for train in (True, False):
        apart = plan_of(GatesApart(SIZES), function, switches, train=train)
        by_hand = plan_of(ChainLSTM(SIZES), function, switches, train=train)
        if function == "step":
            assert n_steps(apart) == n_steps(by_hand)
        else:  # the model joined by hand also computes the forget gate, which is not read
            assert sum(n_steps(apart).values()) <= sum(n_steps(by_hand).values())
        written = plan_of(GatesApart(SIZES), function, replace(switches, horizontal_fusion=False))
        assert not written.packs


def test_two_products_are_left_of_eight() -> None:
    joined_plan = plan_of(GatesApart(SIZES), "step", train=False)
    assert products(plan_of(GatesApart(SIZES), "step", OFF, train=False)) == [
        f"{kind}_{gate}" for kind, gate in product("WU", "ifou")
    ]
    assert [name.count("|") for name in products(joined_plan)] == [3, 3]
    widths = sorted(len(pack.parts) for pack in joined_plan.packs)
    assert widths == [4, 4, 4]  # W, U and b


def test_packed_weights_match_concatenated_weights() -> None:
    model, by_hand = GatesApart(SIZES), ChainLSTM(SIZES)
    weights = draw_initial_weights(model, 3)
    whole = {n: w for n, w in weights.items() if n in ("embedding", "W_out")}
    whole |= {
        name: np.concatenate([weights[f"{name}_{gate}"] for gate in "ifou"], axis=-1)
        for name in "WUb"
    }
    for backend, fusion in product(BACKENDS, (True, False)):
        switches = replace(ON, backend=backend, fusion=fusion)
        ours = run(prepared(model, weights, switches), CHAINS)
        theirs = run(prepared(by_hand, whole, switches), CHAINS)
        np.testing.assert_array_equal(ours.outputs, theirs.outputs)
        assert ours.counters.n_launches <= theirs.counters.n_launches
        assert ours.counters.n_flop <= theirs.counters.n_flop


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_are_fewer(backend: str, mode: str) -> None:
    model, instances, weights = example("gates_apart")
    found = {}
    for on in (True, False):
        switches = Switches(backend=backend, horizontal_fusion=on)
        adapter = prepared(model, weights, switches, mode=mode)
        result = run(adapter, instances)
        found[on] = result.counters
        assert adapter.effective_options()["horizontal_fusion"] == str(on).lower()
    assert found[True].n_launches < found[False].n_launches
    assert found[True].n_batches == found[False].n_batches
    assert found[True].n_flop == found[False].n_flop


# --- matmuls that stay separate ---


class Uses(SketchModel):
    """Model with one vertex function that a test defines, with matrices and biases."""

    name = "uses"
    vertex_types = ("leaf", "inner")

    def __init__(self, inner: Callable[[VertexTracer], None]) -> None:
        super().__init__(SIZES)
        self.inner_of = inner

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), **dict.fromkeys("ABCD", (h, h)), "E": (3 * h, h), "b": (h,), "d": (h,)}

    def leaf(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W")
        v.scatter(c=x, h=tanh(x))

    def inner(self, v: VertexTracer) -> None:
        self.inner_of(v)


def both_scattered(v: VertexTracer) -> None:
    h = v.gather(0).h
    v.scatter(c=h @ v.parameter("A"), h=h @ v.parameter("B"))


def side_by_side_already(v: VertexTracer) -> None:
    h, c = v.gather(0).h, v.gather(0).c
    parts = v.concat(h @ v.parameter("A"), tanh(c), h @ v.parameter("B"))
    v.scatter(c=c, h=tanh(parts @ v.parameter("E")))


def one_after_the_other(v: VertexTracer) -> None:
    h = v.gather(0).h @ v.parameter("A")
    v.scatter(c=tanh(h), h=tanh(h @ v.parameter("B")))


def of_two_values(v: VertexTracer) -> None:
    left, right = v.gather(0).h, v.gather(1).h
    v.scatter(c=tanh(left @ v.parameter("A")), h=tanh(right @ v.parameter("B")))


@pytest.mark.parametrize(
    "inner", [both_scattered, side_by_side_already, one_after_the_other, of_two_values]
)
def test_nothing_is_joined_where_that_saves_no_step(inner: Callable[[VertexTracer], None]) -> None:
    for train, fusion in product((True, False), repeat=2):
        on = plan_of(Uses(inner), "inner", replace(ON, fusion=fusion), train=train)
        assert on == plan_of(Uses(inner), "inner", replace(OFF, fusion=fusion), train=train)
        assert not on.packs


def test_hoisted_products_are_not_fused_with_deferred_products() -> None:
    """A state needs x A, but x B is needed only after the last batch."""

    def inner(v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W")
        v.scatter(c=tanh(x @ v.parameter("A") + v.gather(0).c), h=tanh(v.gather(0).h))
        v.push(x @ v.parameter("B"), loss=sum_elements(tanh(x @ v.parameter("C"))))

    function = trace_functions(Uses(inner))["inner"]
    names = [
        {function.nodes[function.nodes[i].inputs[1]].name for i in group}
        for group in find_shared_inputs(function)
    ]
    assert names == [{"B", "C"}]


def test_gradients_are_not_brought_together_for_a_product_less() -> None:
    """The gradient of child-sum's W_f, which multiplies edges, is not adjacent to that of W."""
    off = replace(ON, horizontal_fusion=False)
    model, _, _ = example("child_sum")
    assert plan_of(model, "vertex") == plan_of(model, "vertex", off)
    inferred = plan_of(model, "vertex", train=False)
    assert [name for name in products(inferred) if "|" in name] == ["W[0:12]|W_f[0:4]"]


def test_logits_are_not_packed() -> None:
    """A loss replaces logits by their gradient, which is impossible in a joined value."""

    class Reads(ChainLSTM):
        def output(self, v: VertexTracer) -> None:
            super().output(v)
            h = v.gather(0).h
            logits = v.pushed
            assert logits is not None
            shown = sum_elements(tanh(h @ v.parameter("U")))
            v.loss = v.builder.add("add", v.loss, shown.node)

    plan = plan_of(Reads(SIZES), "output")
    assert not plan.packs
    assert any(isinstance(step, SoftmaxLossStep) for step in plan.lazy)


def test_biases_that_are_one_parameter_are_not_packed() -> None:
    """Its gradient would have to be in two parts of a joined one."""

    def inner(v: VertexTracer) -> None:
        h = v.gather(0).h
        first, second = (h @ v.parameter(name) + v.parameter("b") for name in "AB")
        v.scatter(c=tanh(first), h=tanh(second))

    function = trace_functions(Uses(inner))["inner"]
    packs = join_groups(function, find_shared_inputs(function)).packs
    assert [pack.name for pack in packs] == ["A[0:4]|B[0:4]"]


def test_a_product_that_is_a_state_stays_in_sight() -> None:
    """Only a bias reads this matmul, but its result is also scattered."""

    def inner(v: VertexTracer) -> None:
        h = v.gather(0).h
        first, second = h @ v.parameter("A"), h @ v.parameter("B")
        v.scatter(c=first, h=tanh(first + v.parameter("b")) * (second + v.parameter("d")))

    function = trace_functions(Uses(inner))["inner"]
    found = join_groups(function, find_shared_inputs(function)).function
    state = found.nodes[dict(found.scatter)["c"]]
    assert (state.op, found.nodes[state.inputs[0]].op) == ("slice", "matmul")


ACROBATS = {"words": 7, "classes": 3}
SEVEN = {
    model.name: model
    for model in (
        TreeLSTM(ModelSizes(4, ACROBATS)),
        MVRNN(ModelSizes(4, ACROBATS)),
        BiRNN(ModelSizes(4, ACROBATS)),
        NestedRNN(ModelSizes(4, ACROBATS)),
        DRNN(ModelSizes(4, ACROBATS)),
        StackRNN(ModelSizes(4, ACROBATS)),
        Berxit(ModelSizes(4, ACROBATS), tokens=3, head_size=2),
    )
}


@pytest.mark.parametrize("name", SEVEN)
def test_the_seven_programs_are_written_with_their_gates_joined(name: str) -> None:
    """No system multiplies gates separately; Berxit's q, k and v are matrices and stay separate."""
    for function in trace_functions(SEVEN[name]):
        for fusion in (True, False):
            on = plan_of(SEVEN[name], function, replace(ON, fusion=fusion), train=False)
            off = plan_of(SEVEN[name], function, replace(OFF, fusion=fusion), train=False)
            assert on == off


# --- random functions ---


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    models,
    st.lists(sketches(), min_size=1, max_size=3),
    st.sampled_from([dict(zip(("fusion", "hoisting", "lazy_batching"), flags, strict=True))
                     for flags in product((True, False), repeat=3)]),
    st.sampled_from(BACKENDS),
    st.sampled_from(("train", "infer")),
)  # fmt: skip
def test_fusion_preserves_results_without_adding_launches(
    model: RandomModel, instances: list[Sketch], others: dict[str, Any], backend: str, mode: str
) -> None:
    weights = draw_initial_weights(model, 3)
    reference = run_reference(model, weights, instances, mode)
    values = [reference.outputs, *reference.gradients.values()]
    assume(max(float(np.abs(value).max()) for value in values) < 1e3)
    found = {}
    for on in (True, False):
        switches = Switches(backend=backend, horizontal_fusion=on, **others)
        adapter = prepared(model, weights, switches, mode=mode)
        result = run(adapter, instances)
        assert disagreements(result, reference, 2e-4) == []
        found[on] = result.counters.n_launches
    assert found[True] <= found[False]
