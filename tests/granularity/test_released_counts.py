"""Batch counts of ED-Batch's release, for trees and for lattices.

The table is from the independent simulation of ED-Batch's release on its data
(plots/published/simulated_batch_counts.yaml).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.models.lattice_gru import LatticeGRU
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.models.mv_rnn import MVRNN
from dynbatch.harness.models.tree_fc import TreeFC
from dynbatch.harness.models.tree_gru import TreeGRU
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE
from dynbatch.harness.values.instances import Tree
from dynbatch.harness.values.schedule import check_schedule
from tests.support.corpora import first_mini_batch

SIZES = ModelSizes(4, {"words": 20_000, "characters": 20_000, "classes": 5})
POLICIES = ("depth", "agenda", "agenda_dynamic", "sufficient", "sufficient_reversed")
# Two trees, ((a b) c) and a single word.
TREES = (
    Tree(
        words=[0, 1, -1, 2, -1], labels=[0] * 5, left=[-1, -1, 0, -1, 2], right=[-1, -1, 1, -1, 3]
    ),
    Tree(words=[3], labels=[4], left=[-1], right=[-1]),
)


TABLE = {
    # model, batch size: nodes, bound, then the policies in order
    (TreeLSTM, 8): (2072, 58, 92, 92, 76, 58, 58),
    (TreeGRU, 8): (1658, 40, 74, 74, 58, 40, 40),
    (MVRNN, 8): (1861, 57, 91, 91, 75, 57, 57),
    (TreeLSTM, 32): (5992, 58, 92, 92, 76, 58, 58),
    (TreeGRU, 32): (4794, 40, 74, 74, 58, 40, 40),
    (MVRNN, 32): (5377, 57, 91, 91, 75, 57, 57),
    (LatticeLSTM, 8): (2742, 354, 1274, 671, 641, 486, 439),
    (LatticeGRU, 8): (2003, 252, 1000, 490, 477, 348, 314),
    (LatticeLSTM, 32): (11625, 516, 2086, 1302, 1286, 730, 671),
    (LatticeGRU, 32): (8520, 368, 1640, 940, 942, 524, 479),
}


@pytest.mark.parametrize(("model", "batch_size"), TABLE)
def test_counts_equal_the_table(data_root: Path, model: type[Model], batch_size: int) -> None:
    built = model(SIZES)
    graph = build_released_graph(built, first_mini_batch(built, data_root, batch_size))
    schedules = [load_policy(name)(graph) for name in POLICIES]
    for schedule in schedules:
        check_schedule(graph, schedule)
    counts = [schedule.n_batches for schedule in schedules]
    assert (graph.n_vertices, compute_lower_bound(graph), *counts) == TABLE[model, batch_size]


def test_a_block_is_followed_by_one_get_a_state() -> None:
    model = TreeLSTM(SIZES)
    graph = build_released_graph(model, model.mini_batch(TREES))
    assert graph.n_vertices == 5 * 6 + 2  # five per vertex, W and the sum
    names = graph.type_names
    led = {names[t]: names[f] for t, f in enumerate(graph.follows.tolist()) if f != NO_TYPE}
    assert led == {
        "leaf.get_c": "leaf",
        "leaf.get_h": "leaf",
        "internal.get_c": "internal",
        "internal.get_h": "internal",
    }
    assert np.count_nonzero(graph.types == UNBATCHABLE) == 1
    block = int(np.flatnonzero(graph.types == names.index("internal"))[0])
    read = [names[graph.types[a]] for a in graph.select_args(block)]
    assert sorted(read) == ["leaf.get_c", "leaf.get_c", "leaf.get_h", "leaf.get_h"]


def test_the_sum_has_one_argument_a_loss() -> None:
    model = TreeLSTM(SIZES)
    graph = build_released_graph(model, model.mini_batch(TREES))
    last = graph.n_vertices - 1
    assert graph.type_names[graph.types[last]] == "sum"
    losses = [graph.type_names[graph.types[a]] for a in graph.select_args(last)]
    assert losses == ["output.pick_neg_log_softmax"] * 6


def test_lookups_alone_are_no_block() -> None:
    model = MVRNN(SIZES)
    graph = build_released_graph(model, model.mini_batch(TREES))
    names = [graph.type_names[t] for t in graph.types]
    assert names.count("leaf.v") == names.count("leaf.T") == 4
    assert "leaf" not in names
    assert names.count("internal") == 2


def test_only_vertices_that_are_read_have_outputs() -> None:
    model = TreeFC(SIZES)
    graph = build_released_graph(model, model.mini_batch(TREES))
    names = [graph.type_names[t] for t in graph.types]
    assert names.count("output.square") == 2  # roots
    assert "parameter" not in names
    assert names[-1] == "sum"
