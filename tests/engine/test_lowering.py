"""Lowering of vertex functions: steps, kernels, copies, and columns of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from dynbatch.harness.contracts.model import (
    Model,
    ModelSizes,
    draw_initial_weights,
    trace_functions,
)
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.backends.compiled.operators import OperandFactory
from dynbatch.harness.engine.cpu_kernels.own_matmuls import SMALL
from dynbatch.harness.engine.lowering.lower import lower
from dynbatch.harness.engine.lowering.placement import Placement
from dynbatch.harness.engine.lowering.plan import (
    Buffer,
    BufferName,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    MemoryKind,
    OperatorStep,
    Plan,
    Ref,
    Role,
    SinkStep,
    SoftmaxLossStep,
    Step,
    name_state_buffer,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.models.mv_rnn import MVRNN
from tests.support.engine_models import EXAMPLES, chain, tree
from tests.support.engine_runs import prepared, run
from tests.support.sketch_models import SIZES

ON = Switches()
STAGES = ("eager", "batch", "lazy", "backward", "backward_lazy")
H = SIZES.hidden_size * 4  # bytes per state


def _plan(
    model: str | Model, function: str, switches: Switches = ON, *, train: bool = True
) -> Plan:
    """Lower a function of an example or another model."""
    model = EXAMPLES[model][0] if isinstance(model, str) else model
    return lower(trace_functions(model)[function], switches, Backend.abilities, train)


def _kinds(steps: Sequence[Step]) -> list[type]:
    return [type(step) for step in steps]


def _nodes(step: Step) -> tuple[int, ...]:
    """Return the operators of a step that is neither a matmul nor a copy."""
    if isinstance(step, ElementwiseStep):
        return step.nodes
    return (step.node,) if isinstance(step, OperatorStep | SinkStep) else ()


def _ops(plan: Plan, steps: Sequence[Step]) -> list[str]:
    return [plan.nodes[i].op for step in steps for i in _nodes(step)]


@pytest.mark.parametrize("model", ["tree_lstm", "var_lstm"])
@pytest.mark.parametrize("lazy", [True, False])
def test_a_loss_leaves_its_gradient_in_the_place_of_the_logits(model: str, lazy: bool) -> None:
    plan = _plan(model, "output", replace(ON, lazy_batching=lazy))
    steps = (*plan.steps["batch"], *plan.steps["lazy"])
    (loss,) = (step for step in steps if isinstance(step, SoftmaxLossStep))
    assert loss.leaves_gradient
    assert loss.bias == ("b_out" if model == "var_lstm" else None)
    (logits,) = (plan.refs[i] for i in plan.pushes)
    (gradient,) = (i for i, n in enumerate(plan.nodes) if n.op == "softmax_minus_one_hot")
    assert logits == loss.logits == plan.refs[gradient]
    assert plan.find_overwriting_step(logits) == loss
    kernels = [*plan.steps["backward"], *plan.steps["backward_lazy"]]
    assert not any(isinstance(s, OperatorStep | ElementwiseStep) for s in kernels)


def test_a_loss_leaves_the_logits_where_somebody_else_reads_them() -> None:
    plain = _plan("var_lstm", "output", replace(ON, fusion=False))
    assert SoftmaxLossStep not in _kinds(plain.steps["lazy"])
    inferred = _plan("var_lstm", "output", train=False)
    (loss,) = (step for step in inferred.steps["lazy"] if isinstance(step, SoftmaxLossStep))
    assert not loss.leaves_gradient
    assert inferred.find_overwriting_step(loss.logits) is None


def test_without_fusion_every_operator_is_a_step_and_a_bias_is_added_by_its_product() -> None:
    plan = _plan("tree_lstm", "internal", replace(ON, fusion=False))
    in_batch = [step for step in plan.steps["batch"] if isinstance(step, MatmulStep)]
    products = {step.parameter: step.bias for step in in_batch}
    assert products == {"U": "b", "F_1": "b_f", "F_2": "b_f"}
    assert "bias" not in _ops(plan, plan.steps["batch"])
    kernels = [step for step in plan.steps["batch"] if isinstance(step, ElementwiseStep)]
    assert all(len(step.nodes) == 1 for step in kernels)
    assert len(kernels) == 12
    fused = _plan("tree_lstm", "internal")
    assert all(step.bias is None for step in fused.steps["batch"] if isinstance(step, MatmulStep))
    assert _ops(fused, fused.steps["batch"]).count("bias") == 5  # i, o, u and both forget gates


def test_a_matmul_starts_from_a_bias_that_no_kernel_of_its_stage_reads() -> None:
    """The hoisted x W + b of a parser's LSTM, and the gate inputs that its tokens scatter."""
    hoisted, token = _plan("parser", "forward"), _plan("parser", "token")
    products = [step for step in hoisted.steps["eager"] if isinstance(step, MatmulStep)]
    assert [step.bias for step in products] == ["b_forward"]
    assert [step.bias for step in token.steps["batch"] if isinstance(step, MatmulStep)] == [
        "b_forward_2",
        "b_backward_2",
    ]
    for steps in (hoisted.steps["eager"], token.steps["batch"]):
        assert not [step for step in steps if isinstance(step, ElementwiseStep)]
    # Without hoisting, the kernel of the gates adds the bias.
    kept = _plan("parser", "forward", replace(ON, hoisting=False))
    assert all(step.bias is None for step in kept.steps["batch"] if isinstance(step, MatmulStep))


def test_products_with_the_input_are_hoisted() -> None:
    plan = _plan("child_sum", "vertex")
    hoisted = [step.parameter for step in plan.steps["eager"] if isinstance(step, MatmulStep)]
    assert sorted(hoisted) == ["W", "W_f"]
    assert "lookup" in _ops(plan, plan.steps["eager"])
    assert "spread" in _ops(plan, plan.steps["eager"])
    in_batch = [step.parameter for step in plan.steps["batch"] if isinstance(step, MatmulStep)]
    assert sorted(in_batch) == ["U", "U_f"]
    kept = _plan("child_sum", "vertex", replace(ON, hoisting=False))
    assert kept.steps["eager"] == ()
    assert _kinds(kept.steps["batch"]).count(MatmulStep) == 4


def test_inference_plans_nothing_backward() -> None:
    for name in ("leaf", "internal", "output"):
        plan = _plan("tree_lstm", name, train=False)
        assert plan.steps["backward"] == plan.steps["backward_lazy"] == ()
        assert all(b.memory is not MemoryKind.GRADIENT for b in plan.buffers.values())
    trained, inferred = (_plan("tree_lstm", "internal", train=train) for train in (True, False))
    saved = [
        sum(b.width for b in plan.buffers.values() if b.memory is MemoryKind.SAVED)
        for plan in (trained, inferred)
    ]
    assert saved[1] < saved[0]  # values that only the backward stage reads need not be saved


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_lie_inside_their_buffers_and_operators_run_once(name: str) -> None:
    """In training, lowering reads no other switches, except for those of layouts and libraries."""
    functions = trace_functions(EXAMPLES[name][0]).values()
    values = product((True, False), repeat=4)
    for function, (lazy, hoisting, fusion, gather) in product(functions, values):
        switches = Switches(
            lazy_batching=lazy, hoisting=hoisting, fusion=fusion, gather_fusion=gather
        )
        plan = lower(function, switches, Backend.abilities, train=True)
        for i, ref in plan.refs.items():
            buffer = plan.buffers[ref.buffer]
            assert 0 <= ref.start <= ref.start + ref.width <= buffer.width
            assert (ref.width, buffer.domain) == (plan.nodes[i].width, plan.nodes[i].domain)
        groups = [_nodes(step) for stage in STAGES for step in plan.steps[stage]]
        nodes = [i for group in groups for i in group]
        assert len(nodes) == len(set(nodes))
        position = {i: at for at, i in enumerate(nodes)}
        for group in groups:
            for i in group:
                inside = [k for k in plan.nodes[i].inputs if k in group]
                assert all(position[k] < position[i] for k in inside)


@pytest.mark.parametrize("layout", ["dynet", "pq"])
@pytest.mark.parametrize("function", ["leaf", "internal"])
def test_layouts_of_operators_change_nothing_that_is_fused(function: str, layout: str) -> None:
    """As the record says: the layout in effect is `policy`."""
    model = EXAMPLES["tree_lstm"][0]
    plans = [
        lower(trace_functions(model)[function], switches, Backend.abilities, train=True)
        for switches in (Switches(layout=layout), Switches(layout="policy"))
    ]
    assert plans[0] == plans[1]


def _counters(
    model: str, instances: Sequence[Any], switches: Switches, *, train: bool = True
) -> tuple[int, int]:
    """Return the launches and copied bytes of one pass over a mini-batch."""
    weights = draw_initial_weights(EXAMPLES[model][0], 0)
    adapter = prepared(EXAMPLES[model][0], weights, switches, mode="train" if train else "infer")
    counters = run(adapter, instances).counters
    return counters.n_launches, counters.bytes_copied


@pytest.mark.parametrize(("policy", "n_batches"), [("unbatched", 3), ("frontier", 2)])
def test_the_bound_is_that_of_the_graph_that_was_batched(policy: str, n_batches: int) -> None:
    """With two leaves and a root, every policy needs at least one batch per type."""
    weights = draw_initial_weights(EXAMPLES["tree_lstm"][0], 0)
    adapter = prepared(EXAMPLES["tree_lstm"][0], weights, ON, policy=policy)
    counters = run(adapter, [PAIR]).counters
    assert (counters.n_batches, counters.lower_bound) == (n_batches, 2)


PAIR = tree([1, 2, -1], [-1, -1, 0], [-1, -1, 1])
CROSSED = tree([1, 2, -1], [-1, -1, 1], [-1, -1, 0])


def test_launches_of_one_pair_by_hand() -> None:
    """Kernels read and write without copies where possible, and matmuls add to their results."""
    # leaf: lookup, matmul, kernel; internal: 3 matmuls, kernel (the children are two consecutive
    # rows, so nothing is gathered); output: matmul, loss.
    assert _counters("tree_lstm", [PAIR], ON, train=False) == (3 + 4 + 2, 0)
    # output: matmul, addition to the states, W_out (the loss left its gradient); internal: kernel,
    # 3 matmuls, addition to the children, 6 parameter gradients; leaf: kernel, b, matmul, W,
    # embedding.
    assert _counters("tree_lstm", [PAIR], ON) == (9 + 3 + 11 + 5, 0)


def test_bytes_of_a_crossed_pair_by_hand() -> None:
    kept_order = replace(ON, layout="policy")
    launches, copied = _counters("tree_lstm", [CROSSED], kept_order, train=False)
    assert (launches, copied) == (9 + 1, 2 * H)  # h of both children
    assert _counters("tree_lstm", [CROSSED], kept_order)[1] == 4 * H  # and their gradients
    assert _counters("tree_lstm", [CROSSED], ON)[1] == 0
    # Without fusion, c is gathered, too, and its gradient is added to the children.
    plain = replace(kept_order, fusion=False)
    assert _counters("tree_lstm", [CROSSED], plain, train=False)[1] == 4 * H
    assert _counters("tree_lstm", [CROSSED], plain)[1] == 8 * H
    assert _counters("tree_lstm", [CROSSED], replace(ON, fusion=False), train=False)[1] == 0


@pytest.mark.parametrize(
    ("changes", "train", "n_launches"),
    [
        ({}, False, 2),  # U h, added to W x by the matmul, and the kernel
        ({"hoisting": False}, False, 4),  # also the lookup and W x
        ({}, True, 2 + 3),  # backward: kernel, matmul and addition to the child
        ({"lazy_batching": False}, True, 2 + 3 + 5),  # also W, U, b, the embedding and dx
    ],
)
def test_hoisted_and_lazy_operators_run_once_however_many_batches(
    changes: dict[str, Any], train: bool, n_launches: int
) -> None:
    """One more vertex in a chain adds only the launches of the others."""
    switches = replace(ON, **changes)
    long, short = (_counters("chain_lstm", [chain(n)], switches, train=train)[0] for n in (6, 5))
    assert long - short == n_launches


T, WORDS = BufferName(Role.GATHER, "T"), {"words": 7, "classes": 3}


def gathered(plan: Plan) -> set[str]:
    return {step.state for step in plan.steps["batch"] if isinstance(step, GatherStep)}


@pytest.mark.parametrize(
    ("switches", "train", "hidden_size", "copied"),
    [
        ({}, True, 4, {"v"}),
        ({}, False, 4, {"v"}),
        ({"gather_fusion": False}, True, 4, {"v", "T"}),
        ({"fusion": False}, True, 4, {"v", "T"}),
        # Up to 128 x 128, a matmul per vertex costs no more than one of all rows.
        ({}, False, 128, {"v"}),
        ({}, False, 129, {"v", "T"}),
        # A library would rearrange the parameter for each vertex.
        ({"blas": "openblas"}, False, 4, {"v", "T"}),
    ],
)
def test_children_s_matrices_are_read_in_place_where_that_is_fast(
    switches: dict[str, Any], train: bool, hidden_size: int, copied: set[str]
) -> None:
    """Then they have no memory and no gather."""
    assert SMALL == 128 * 128
    model = MVRNN(ModelSizes(hidden_size, WORDS))
    plan = _plan(model, "internal", replace(ON, **switches), train=train)
    assert gathered(plan) == copied
    assert (plan.buffers[T].memory is MemoryKind.CHILDREN) == (copied == {"v"})
    assert not train or "T" not in copied or plan.buffers[T].memory is MemoryKind.SAVED


def test_operand_without_buffer_is_read_only_through_row_index() -> None:
    plan = _plan(MVRNN(ModelSizes(4, WORDS)), "internal", train=False)
    (ref,) = {ref for ref in plan.refs.values() if ref.buffer == T and ref.start == 0}
    places = OperandFactory(1, plan, {})
    with pytest.raises(ValueError, match="has no memory"):
        places.make_operand(ref)
    states, index = places.make_row_operands(ref)
    assert (states.array, index) == (
        places.make_buffer_argument(name_state_buffer("T")),
        places.make_index_operand((0, 1)),
    )


def test_matrices_of_any_number_of_children_are_copied() -> None:
    assert "T" in gathered(_plan("matrix_sum", "vertex"))


def test_a_crossed_pair_copies_vectors_only() -> None:
    """The children are not consecutive in the order in which their parent reads them."""
    kept_order, h = replace(ON, layout="policy"), EXAMPLES["mv_rnn"][0].sizes.hidden_size
    copied = [
        _counters("mv_rnn", [CROSSED], switches, train=False)[1]
        for switches in (kept_order, replace(kept_order, gather_fusion=False))
    ]
    assert copied == [4 * 2 * h, 4 * 2 * (h + h * h)]


NAME = BufferName(Role.NODE, "0")
BUFFER = Buffer(NAME, MemoryKind.SCRATCH, 4, "vertex")


@pytest.mark.parametrize(
    "ref", [Ref(BufferName(Role.NODE, "1"), 0, 4), Ref(NAME, 1, 4), Ref(NAME, -1, 2)]
)
def test_a_node_outside_of_all_buffers_is_refused(ref: Ref) -> None:
    good = Placement({0: Ref(NAME, 0, 4)}, {NAME: BUFFER}, {}, (), ())
    with pytest.raises(ValueError, match=r"nodes \[1\] are outside all buffers"):
        replace(good, refs={**good.refs, 1: ref})
