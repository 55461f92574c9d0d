"""Classifier and losses as vertices of the graph: the same results, and batches of their own."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from harness.contracts.model import initial_weights, traced_functions
from harness.engine.switches import Switches
from harness.errors import ConfigError
from harness.granularity.vertices import VertexModel, cut_output
from harness.oracle import run_reference
from tests.support.engine_models import EXAMPLES
from tests.support.engine_runs import POLICIES, disagreements, prepared, run

LOSS_READS_MORE = "passes_on"


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {LOSS_READS_MORE}))
def test_results_stay_as_they_are(name: str) -> None:
    model, instances = EXAMPLES[name]
    weights = {k: np.float32(2.0) * w for k, w in initial_weights(model, 1).items()}
    oracle = run_reference(model, weights, instances * 2, "train")
    for policy, share in product(POLICIES[1:], (False, True)):
        plain = Switches(backend="stepwise", outputs="vertices")
        switches = replace(plain, share_equal_inputs=share)
        result = run(prepared(model, weights, switches, policy), instances * 2)
        assert disagreements(result, oracle) == [], (policy, share)


def test_every_output_reads_its_vertex_and_every_loss_its_output() -> None:
    model, instances = EXAMPLES["lattice_lstm"]
    plain = model.mini_batch(instances)
    graph = VertexModel(model, outputs="vertices").mini_batch(instances).graph
    n, k = plain.graph.n_vertices, len(plain.outputs)
    assert graph.type_names == (*plain.graph.type_names, "output", "loss")
    assert graph.n_vertices == n + 2 * k
    assert [graph.args_of(v).tolist() for v in range(n, n + k)] == [[v] for v in plain.outputs]
    assert [graph.args_of(v).tolist() for v in range(n + k, n + 2 * k)] == [
        [v] for v in range(n, n + k)
    ]


def test_a_model_without_a_loss_has_output_vertices_only() -> None:
    model, instances = EXAMPLES["tree_fc_fold"]
    cut = cut_output(traced_functions(model)["output"])
    graph = VertexModel(model, outputs="vertices").mini_batch(instances).graph
    assert (cut.loss is None) == ("loss" not in graph.type_names)


def test_a_loss_that_reads_more_than_is_shown_is_refused() -> None:
    model, _ = EXAMPLES[LOSS_READS_MORE]
    with pytest.raises(ConfigError, match="not pushed"):
        VertexModel(model, outputs="vertices")
