"""Batching inside vertex functions: the same results, fewer operators, known copies."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import (
    Model,
    ModelSizes,
    draw_initial_weights,
    trace_functions,
)
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.lowering.lower import lower
from dynbatch.harness.engine.lowering.plan import CopyStep, PackStep, Plan
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.reference import run_reference
from dynbatch.harness.vertex.autodiff import differentiate
from dynbatch.harness.vertex.operators import Node
from dynbatch.harness.vertex.subgraph.columns import lay_out, split_gates
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.instances import PAIRS, build

ED_BATCH = Switches(layout="pq", fusion=False, hoisting=False, lazy_batching=False)
SIZES = ModelSizes(hidden_size=4, data={"words": 7, "characters": 7, "classes": 5})

PACKED = [
    *(
        (name, replace(ED_BATCH, pre_gather_parameters=pre_gather, backend="stepwise"))
        for name, pre_gather in product(("tree_lstm", "tree_gru", "lattice_lstm"), (True, False))
    ),
    *(("gates_apart", replace(ED_BATCH, backend=backend)) for backend in ("stepwise", "compiled")),
]


@pytest.mark.parametrize(("name", "switches"), PACKED, ids=str)
def test_packs_follow_the_parameters_that_are_learned(name: str, switches: Switches) -> None:
    model, instances, weights = example(name)
    adapter = prepared(model, weights, switches)
    expected = {k: w.astype(np.float64) for k, w in weights.items()}
    for _ in range(4):
        reference = run_reference(model, expected, instances, "train")
        assert disagreements(run(adapter, instances, update=True), reference) == []
        expected = {k: w - 0.1 * reference.gradients[k] for k, w in expected.items()}
    assert any(plan.packs for plan in adapter.engine.plans.values())
    assert set(adapter.parameters()) == set(weights), "the model's own"


@pytest.mark.parametrize("cell", ["lstm", "tree_lstm_internal", "tree_gru_internal"])
def test_cells_with_separate_matrices_are_packed(cell: str) -> None:
    model = build("cell", SIZES, cell=cell)
    weights = draw_initial_weights(model, 1)
    reference = run_reference(model, weights, PAIRS, "train")
    adapter = prepared(model, weights, replace(ED_BATCH, backend="stepwise"))
    assert disagreements(run(adapter, PAIRS), reference) == []
    packs = [pack for plan in adapter.engine.plans.values() for pack in plan.packs]
    assert any(len(pack.parts) > 1 for pack in packs)


def test_joins_of_matrices_are_refused() -> None:
    model = build("cell", SIZES, cell="mv")
    adapter = prepared(model, draw_initial_weights(model, 0), ED_BATCH, mode="infer")
    with pytest.raises(ConfigError, match="cell joins matrices"):
        run(adapter, PAIRS)
    with pytest.raises(ConfigError, match="matrices, which has no gradient; set mode"):
        differentiate(trace_functions(model)["cell"])


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"layout=row .* read_order, policy, dynet, pq"):
        Switches(layout="row")


# --- savings of the layouts ---

LAUNCHES = ("tree_lstm", "tree_gru", "lattice_lstm", "gated_lattice_lstm", "chain_lstm")


def counters(name: str, switches: Switches) -> tuple[int, int]:
    model, instances, weights = example(name)
    found = run(prepared(model, weights, switches, mode="infer"), instances).counters
    return found.n_launches, found.bytes_copied


@pytest.mark.parametrize("name", LAUNCHES)
def test_each_switch_shows_in_launches_and_bytes(name: str) -> None:
    base = replace(ED_BATCH, backend="stepwise")
    as_written = counters(name, replace(base, layout="policy"))
    pq = counters(name, base)
    dynet = counters(name, replace(base, layout="dynet"))
    gathering = counters(name, replace(base, pre_gather_parameters=False))
    assert pq[0] < as_written[0]
    assert pq[0] <= dynet[0]
    assert pq[1] <= dynet[1]
    assert pq[1] == as_written[1]  # the PQ tree's layout copies nothing
    assert gathering[0] > pq[0]
    assert gathering[1] > pq[1]


def test_counters_do_not_depend_on_how_batches_are_run() -> None:
    for switches in (ED_BATCH, replace(ED_BATCH, layout="dynet", pre_gather_parameters=False)):
        compiled = counters("lattice_lstm", switches)
        assert compiled == counters("lattice_lstm", replace(switches, backend="stepwise"))


def plan_of(model: Model, function: str, **changes: Any) -> Plan:
    return lower(
        trace_functions(model)[function],
        replace(ED_BATCH, **changes),
        Backend.abilities,
        train=False,
    )


@pytest.mark.parametrize(
    ("model", "function"),
    [
        *((build("tree_lstm", SIZES), function) for function in ("leaf", "internal")),
        *((build("tree_gru", SIZES), function) for function in ("leaf", "internal")),
        *((build("lattice_lstm", SIZES), function) for function in ("char", "word")),
    ],
)
def test_a_pq_layout_leaves_nothing_to_copy(model: Model, function: str) -> None:
    steps = plan_of(model, function).steps["batch"]
    assert not [step for step in steps if isinstance(step, CopyStep | PackStep)]
    anew = plan_of(model, function, pre_gather_parameters=False).steps["batch"]
    assert [step for step in anew if isinstance(step, PackStep)]


def test_operators_of_a_batch_write_adjacent_columns() -> None:
    """The five gates of an internal vertex: one sigmoid of four, although of three matmuls."""
    plan = plan_of(build("tree_lstm", SIZES), "internal")
    widths = [node.width // 4 for node in plan.nodes if node.op == "sigmoid"]
    assert widths == [4]
    (sigmoid,) = (i for i, node in enumerate(plan.nodes) if node.op == "sigmoid")
    (joined,) = plan.nodes[sigmoid].inputs
    parts = [plan.refs[i] for i in plan.nodes[joined].inputs]
    assert len(parts) == 3
    assert all(b == a.take_next(b.width) for a, b in pairwise(parts))
    assert plan.refs[joined].buffer == parts[0].buffer
    assert plan.refs[joined].start == parts[0].start


# --- separated gates ---


def products(nodes: tuple[Node, ...]) -> list[int]:
    return sorted(node.width for node in nodes if node.op == "matmul")


def test_joined_gates_are_taken_apart_and_put_together() -> None:
    function = trace_functions(build("tree_gru", SIZES))["internal"]
    apart = split_gates(function)
    assert products(function.nodes) == [4, 4, 8, 8]
    assert products(apart.function.nodes) == [4] * 6
    assert {part.parameter for part in apart.parts.values()} >= {"U_1", "U_2", "b"}
    joined = lay_out(function, "pq", apart=())
    assert products(joined.function.nodes) == [4, 4, 8, 8]


def test_gates_read_as_a_whole_are_not_split() -> None:
    model, _ = EXAMPLES["shared_sums"]
    function = trace_functions(model)["inner"]
    assert products(split_gates(function).function.nodes) == products(function.nodes)


def test_parameters_that_are_not_read_have_no_gradient() -> None:
    """Columns of the forget gate, which a chain's first vertex does not use."""
    function = trace_functions(EXAMPLES["chain_lstm"][0])["first"]
    parts = split_gates(function).parts.values()
    assert sorted(part.start for part in parts if part.parameter == "W") == [0, 8, 12]
