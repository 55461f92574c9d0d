"""Deduplicated inputs, and classifier and losses as vertices, do not change results."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import draw_initial_weights, trace_functions
from dynbatch.harness.errors import ConfigError, ScheduleError
from dynbatch.harness.granularity.sharing import find_shareable_pulls, share_equal
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Tree
from tests.support.engine_models import EXAMPLES
from tests.support.random_graphs import graph_of, trees
from tests.support.sketch_models import Sketch


def _shared(name: str, instances: list[Any]) -> tuple[MiniBatch, MiniBatch]:
    model = VertexModel(EXAMPLES[name][0])
    mini_batch = model.mini_batch(instances)
    return mini_batch, share_equal(mini_batch, find_shareable_pulls(model.functions))


def _unrolled(mini_batch: MiniBatch, vertex: int) -> Any:
    """Return the computation of a vertex: its type, a leaf's word, and the same of its children."""
    graph = mini_batch.graph
    below = tuple(_unrolled(mini_batch, int(child)) for child in graph.select_args(vertex))
    return int(graph.types[vertex]), below or int(mini_batch.pulls["word"][vertex])


@settings(max_examples=60, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=4))
def test_sharing_preserves_expression_of_each_output(instances: list[Tree]) -> None:
    before, after = _shared("tree_lstm", instances)
    assert [_unrolled(after, int(v)) for v in after.outputs] == [
        _unrolled(before, int(v)) for v in before.outputs
    ]
    words = Counter(word for one in instances for word in one.words.tolist() if word >= 0)
    assert before.graph.n_vertices - after.graph.n_vertices == words.total() - len(words)
    np.testing.assert_array_equal(
        after.output_pulls["label"], before.pulls["label"][before.outputs]
    )


def test_all_pulls_must_be_equal() -> None:
    # Both leaves of an instance have one tag but two words; those of the other instance are equal.
    sketch = Sketch([("leaf", []), ("leaf", []), ("inner", [0, 1])])
    _, after = _shared("two_pulls", [sketch, sketch])
    assert after.graph.n_vertices == 4
    assert after.graph.select_args(2).tolist() == after.graph.select_args(3).tolist() == [0, 1]
    assert after.outputs.tolist() == [0, 1, 2, 0, 1, 3]


def test_a_missing_pull_is_named_if_a_vertex_needs_it() -> None:
    model, instances = EXAMPLES["tree_lstm"]
    mini_batch = replace(model.mini_batch(instances), pulls={})
    leaf = int(mini_batch.graph.types.min())
    with pytest.raises(ScheduleError, match="the mini-batch has no pull 'word'"):
        share_equal(mini_batch, {leaf: ("word",)})
    merged = share_equal(mini_batch, {99: ("word",)})
    assert merged.graph.types.tolist() == mini_batch.graph.types.tolist()
    with (
        patch.object(type(model), "mini_batch", lambda *_: mini_batch),
        pytest.raises(ScheduleError, match="the mini-batch has no pull 'word'"),
    ):
        run_reference(model, draw_initial_weights(model, 1), instances, "infer")


@settings(max_examples=20, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=4))
def test_leaves_that_read_nothing_become_one(instances: list[Tree]) -> None:
    before, after = _shared("tree_fc_cavs", instances)
    leaf = before.graph.types.min()
    assert (after.graph.types == leaf).sum() == 1
    assert (after.graph.types != leaf).sum() == (before.graph.types != leaf).sum()
    kept = after.graph.types[after.graph.args] == leaf
    assert kept.sum() == (before.graph.types[before.graph.args] == leaf).sum()


@pytest.mark.parametrize(
    ("model", "function", "worth"),
    [
        ("tree_lstm", "leaf", True),
        ("tree_lstm", "internal", False),  # reads children
        ("tree_fc_fold", "leaf", False),  # a lookup costs no more than gathering its result
        ("tree_fc_cavs", "leaf", True),  # pulls nothing, so that all leaves are equal
    ],
)
def test_shareable_pulls_are_detected(model: str, function: str, worth: bool) -> None:
    traced = trace_functions(EXAMPLES[model][0])[function]
    assert (1 in find_shareable_pulls({1: traced})) is worth


def test_shared_vertex_keeps_earliest_segment_phase_and_depth() -> None:
    """Vertices of segments 2 and 1 pull the same; so do two of segments 0 and 3."""
    graph = graph_of([1, 1, 1, 1, 2], [[], [], [], [], [0, 1]])
    phases, depths = as_int_array([0, 1, 2, 0, 3]), as_int_array([0, 2, 1, 0, 4])
    graph = replace(graph, segments=as_int_array([2, 0, 1, 3, 2]), phases=phases, depths=depths)
    pulls = {"word": as_int_array([5, 6, 5, 6, -1])}
    mini_batch = MiniBatch(graph, pulls, outputs=as_int_array([4]), n_instances=1)
    after = share_equal(mini_batch, {1: ("word",)})
    assert after.graph.types.tolist() == [1, 1, 2]
    assert after.segments.tolist() == [1, 0, 2]
    assert after.graph.phases.tolist() == [2, 1, 3]
    assert after.graph.depths.tolist() == [1, 2, 4]
    without = replace(mini_batch, graph=replace(graph, segments=None))
    after = share_equal(without, {1: ("word",)})
    assert after.segments is None
    assert after.graph.phases.tolist() == [0, 0, 3]


def test_every_output_reads_its_vertex_and_every_loss_its_output() -> None:
    model, instances = EXAMPLES["lattice_lstm"]
    plain = model.mini_batch(instances)
    graph = VertexModel(model, outputs="vertices").mini_batch(instances).graph
    n, k = plain.graph.n_vertices, len(plain.outputs)
    assert graph.type_names == (*plain.graph.type_names, "output", "loss")
    assert graph.n_vertices == n + 2 * k
    assert [graph.select_args(v).tolist() for v in range(n, n + k)] == [[v] for v in plain.outputs]
    assert [graph.select_args(v).tolist() for v in range(n + k, n + 2 * k)] == [
        [v] for v in range(n, n + k)
    ]


def test_a_loss_that_reads_more_than_is_shown_is_refused() -> None:
    model, _ = EXAMPLES["passes_on"]
    with pytest.raises(ConfigError, match="not pushed"):
        VertexModel(model, outputs="vertices")
