"""Policies on real lattices, whose batch counts separate them.

The table is from the independent simulation of ED-Batch's release on its data
(plots/published/simulated_batch_counts.yaml). The graphs are those of the release's LatticeLSTM and
LatticeGRU: built here by hand, and as they are derived from the models.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.contracts.corpus import load_corpus
from harness.contracts.model import ModelSizes
from harness.contracts.policy import load_policy
from harness.granularity.released import released_graph
from harness.models.lattice_gru import LatticeGRU
from harness.models.lattice_lstm import LatticeLSTM
from harness.policies.parts.bound import lower_bound
from harness.values.graph import Graph
from harness.values.schedule import check_schedule
from tests.support.released_lattices import lattice_graph, read_lattices

POLICIES = ("depth", "agenda", "agenda_dynamic", "sufficient", "sufficient_reversed")
TABLE = {
    # states, batch size: nodes, bound, then the policies in order
    ("hc", 8): (2742, 354, 1274, 671, 641, 486, 439),
    ("h", 8): (2003, 252, 1000, 490, 477, 348, 314),
    ("hc", 32): (11625, 516, 2086, 1302, 1286, 730, 671),
    ("h", 32): (8520, 368, 1640, 940, 942, 524, 479),
}


def derived_graph(data_root: Path, states: str, batch_size: int) -> Graph:
    corpus = load_corpus("datasets.weibo_lattice", "train", data_root)
    model = {"hc": LatticeLSTM, "h": LatticeGRU}[states](ModelSizes(4, corpus.sizes))
    return released_graph(model, model.mini_batch(corpus.instances[:batch_size]))


@pytest.mark.parametrize("derived", [False, True], ids=["by_hand", "from_model"])
@pytest.mark.parametrize(("states", "batch_size"), TABLE)
def test_counts_equal_the_table(
    data_root: Path, states: str, batch_size: int, derived: bool
) -> None:
    file = data_root / "lattice" / "train.txt"
    if not file.exists():
        pytest.skip(f"{file} is missing")
    if derived:
        graph = derived_graph(data_root, states, batch_size)
    else:
        graph = lattice_graph(read_lattices(file, batch_size), states)
    schedules = [load_policy(name)(graph) for name in POLICIES]
    for schedule in schedules:
        check_schedule(graph, schedule)
    counts = [schedule.n_batches for schedule in schedules]
    assert (graph.n_vertices, lower_bound(graph), *counts) == TABLE[states, batch_size]
