"""Products of shared children: computed once at the child if a mini-batch has more parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, Weights, draw_initial_weights, trace_functions
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.parsed import N_FEATURES
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.harness.vertex.shared_products import RowBlock, share_products
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.instances import build, random_parsed

SIZES = replace(example("parser")[0].sizes, hidden_size=8)
PARSER = build("parser", SIZES, tag_size=3, mlp_size=5)


def _parsed(n_words: int, n: int) -> list[Any]:
    rng = np.random.default_rng(n_words)
    return [random_parsed(n_words, SIZES, rng) for _ in range(n)]


def _weights() -> Weights:
    return draw_initial_weights(PARSER, seed=1)


def _functions(model: Model) -> dict[int, VertexFunction]:
    traced = trace_functions(model)
    return {t: traced[name] for t, name in enumerate(model.vertex_types, start=1)}


def _count(functions: Mapping[int, VertexFunction], op: str, name: str) -> list[int]:
    """Return how many operators of each function have this name, or an operand of it."""
    return [
        sum(
            node.op == op and name in (node.name, *(function.nodes[k].name for k in node.inputs))
            for node in function.nodes
        )
        for function in functions.values()
    ]


def _counts(model: Model, parents: str, n: int) -> dict[int, int]:
    return {t: n if name == parents else 10 for t, name in enumerate(model.vertex_types, start=1)}


def test_children_multiply_for_many_parents() -> None:
    functions, width, mlp = _functions(PARSER), 8, 5
    shared = share_products(functions, _counts(PARSER, "transition", 30))
    assert shared.blocks == tuple(
        RowBlock("W_mlp", k * width, width, mlp) for k in range(N_FEATURES)
    )
    names = PARSER.vertex_types
    for block in shared.blocks:
        multiplying = _count(shared.functions, "matmul", block.name)
        at = [name for name, n in zip(names, multiplying, strict=True) if n]
        assert at == ["vector", "missing"]
    assert sum(_count(shared.functions, "matmul", "W_mlp")) == 0
    transition = shared.functions[1 + names.index("transition")]
    assert len(transition.find_gathers()) == N_FEATURES, "x itself is no longer read"


@pytest.mark.parametrize("n", [0, 20, 25])
def test_as_written_if_that_takes_about_as_many_operations(n: int) -> None:
    """Vectors and missing ones are 20 vertices; it takes more than 1.25 times as many parents."""
    functions = _functions(PARSER)
    shared = share_products(functions, _counts(PARSER, "transition", n))
    assert (shared.functions, shared.blocks) == (functions, ())
    assert share_products(functions, _counts(PARSER, "transition", 26)).blocks


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "lattice_lstm", "seq2seq"])
def test_workloads_with_fewer_parents_stay_as_written(name: str) -> None:
    model, instances, weights = example(name)
    adapter = prepared(model, weights)
    run(adapter, instances)
    assert "shared_products" not in adapter.engine.facts()


@pytest.mark.parametrize("backend", ["compiled", "stepwise"])
def test_results_and_updates_are_equal_with_less_work(backend: str) -> None:
    switches = Switches(backend=backend)
    batches: Sequence[list[Any]] = (_parsed(12, 3), _parsed(30, 2), _parsed(3, 4))
    n_flop = {}
    for share in (True, False):
        adapter = prepared(PARSER, _weights(), replace(switches, share_products=share))
        for instances in batches:
            weights = {name: value.copy() for name, value in adapter.parameters().items()}
            expected = run_reference(PARSER, weights, instances, "train")
            assert disagreements(run(adapter, instances, update=True), expected, 1e-4) == []
        run(adapter, batches[0])
        n_flop[share] = adapter.counters().n_flop
        assert (adapter.engine.facts().get("shared_products") == "W_mlp") == share
    assert n_flop[True] < 0.9 * n_flop[False]


def test_first_mini_batch_decides() -> None:
    """Sentences of two words have too few transitions, and stay as written with longer ones."""
    adapter = prepared(PARSER, _weights())
    for instances in (_parsed(2, 3), _parsed(30, 2)):
        result = run(adapter, instances)
        expected = run_reference(PARSER, _weights(), instances, "train")
        assert disagreements(result, expected, 1e-4) == []
        assert "shared_products" not in adapter.engine.facts()


def test_as_many_vertices_of_every_type_share_nothing_but_what_many_types_read() -> None:
    """Only models in which several types multiply a state by the same parameter gain."""
    for name, (model, _) in EXAMPLES.items():
        functions = _functions(model)
        shared = share_products(functions, dict.fromkeys(functions, 10))
        if not shared.blocks:
            assert shared.functions is functions, name
        for function in shared.functions.values():
            used = {i for node in function.nodes for i in node.inputs} | function.results
            assert all(i in used for i in function.find_gathers()), (name, "reads nothing unused")
