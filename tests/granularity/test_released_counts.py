"""Batch counts of ED-Batch's release, for trees and for lattices.

Counts of the papers' policies are from the independent simulation of ED-Batch's release on its data
(plots/published/simulated_batch_counts.yaml).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE
from dynbatch.harness.values.schedule import check_schedule
from tests.support.corpora import first_mini_batch
from tests.support.engine_models import tree
from tests.support.instances import build

SIZES = ModelSizes(4, {"words": 20_000, "characters": 20_000, "classes": 5})
POLICIES = (
    *("depth", "agenda", "agenda_dynamic", "sufficient", "sufficient_reversed"),
    *("critical_share", "beam_2", "beam_20"),  # on trees all three reach the bound
)
# Two trees, ((a b) c) and a single word.
TREES = (
    tree([0, 1, -1, 2, -1], [-1, -1, 0, -1, 2], [-1, -1, 1, -1, 3]),
    tree([3], [-1], [-1]),
)
TABLE = {
    # model, batch size: nodes, bound, then the policies in order
    ("tree_lstm", 8): (2072, 58, 92, 92, 76, 58, 58, 58, 58, 58),
    ("tree_gru", 8): (1658, 40, 74, 74, 58, 40, 40, 40, 40, 40),
    ("mv_rnn", 8): (1861, 57, 91, 91, 75, 57, 57, 57, 57, 57),
    ("tree_lstm", 32): (5992, 58, 92, 92, 76, 58, 58, 58, 58, 58),
    ("tree_gru", 32): (4794, 40, 74, 74, 58, 40, 40, 40, 40, 40),
    ("mv_rnn", 32): (5377, 57, 91, 91, 75, 57, 57, 57, 57, 57),
    ("lattice_lstm", 8): (2742, 354, 1274, 671, 641, 486, 439, 378, 376, 372),
    ("lattice_gru", 8): (2003, 252, 1000, 490, 477, 348, 314, 273, 271, 271),
    ("lattice_lstm", 32): (11625, 516, 2086, 1302, 1286, 730, 671, 551, 550, 546),
    ("lattice_gru", 32): (8520, 368, 1640, 940, 942, 524, 479, 405, 402, 398),
}


@pytest.mark.parametrize(("model", "batch_size"), TABLE)
def test_counts_equal_the_table(data_root: Path, model: str, batch_size: int) -> None:
    built = build(model, SIZES)
    graph = build_released_graph(built, first_mini_batch(built, data_root, batch_size))
    schedules = [load_policy(name)(graph) for name in POLICIES]
    for schedule in schedules:
        check_schedule(graph, schedule)
    counts = [schedule.n_batches for schedule in schedules]
    assert (graph.n_vertices, compute_lower_bound(graph), *counts) == TABLE[model, batch_size]


def test_a_block_is_followed_by_one_get_a_state_and_losses_by_one_sum() -> None:
    model = build("tree_lstm", SIZES)
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
    last = graph.n_vertices - 1
    assert names[graph.types[last]] == "sum"
    losses = [names[graph.types[a]] for a in graph.select_args(last)]
    assert losses == ["output.pick_neg_log_softmax"] * 6


def test_lookups_alone_are_no_block() -> None:
    model = build("mv_rnn", SIZES)
    graph = build_released_graph(model, model.mini_batch(TREES))
    names = [graph.type_names[t] for t in graph.types]
    assert names.count("leaf.v") == names.count("leaf.T") == 4
    assert "leaf" not in names
    assert names.count("internal") == 2


def test_only_vertices_that_are_read_have_outputs() -> None:
    model = build("tree_fc", SIZES)
    graph = build_released_graph(model, model.mini_batch(TREES))
    names = [graph.type_names[t] for t in graph.types]
    assert names.count("output.square") == 2  # roots
    assert "parameter" not in names
    assert names[-1] == "sum"
