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
from harness.values.graph import NO_TYPE, Graph
from harness.values.schedule import check_schedule
from tests.support.random_graphs import graph_of

POLICIES = ("depth", "agenda", "agenda_dynamic", "sufficient", "sufficient_reversed")
TABLE = {
    # states, batch size: nodes, bound, then the policies in order
    ("hc", 8): (2742, 354, 1274, 671, 641, 486, 439),
    ("h", 8): (2003, 252, 1000, 490, 477, 348, 314),
    ("hc", 32): (11625, 516, 2086, 1302, 1286, 730, 671),
    ("h", 32): (8520, 368, 1640, 940, 942, 524, 479),
}
Lattice = list[list[int]]  # the state that each arc into a state comes from


def read_lattices(file: Path, n: int) -> list[Lattice]:
    numbers = iter([int(word) for word in file.read_text().split()][1:])
    lattices = []
    for _ in range(n):
        n_states = next(numbers)
        for _ in range(n_states):
            next(numbers)  # tag
        lattice = []
        for _ in range(n_states):
            arcs = [(next(numbers), next(numbers)) for _ in range(next(numbers))]
            lattice.append([source for source, _ in arcs])
        lattices.append(lattice)
    return lattices


class Building:
    """Types numbered by first mention, blocks before all others."""

    def __init__(self, states: str) -> None:
        self.states = states
        self.types: list[int] = []
        self.args: list[list[int]] = []
        self.follows = [NO_TYPE]
        self.names = {"parameter": 0}
        for block in ("character", "word"):
            leader = self.type_of(block)
            for state in states:
                self.type_of(block + state, leader)

    def type_of(self, name: str, follows: int = NO_TYPE) -> int:
        if name not in self.names:
            self.names[name] = len(self.names)
            self.follows.append(follows)
        return self.names[name]

    def add(self, name: str, *args: int) -> int:
        self.types.append(self.type_of(name))
        self.args.append(list(args))
        return len(self.types) - 1

    def state(self, index: int, sources: list[int], before: list[list[int]]) -> list[int]:
        """One cell for each incoming arc, and plain sums where there are several."""
        cells = []
        for source in sources:
            name = "character" if source == index - 1 else "word"
            block = self.add(name, *before[source])
            cells.append([self.add(name + state, block) for state in self.states])
        if len(cells) == 1:
            return cells[0]
        return [self.add(f"sum of {len(cells)}", *parts) for parts in zip(*cells, strict=True)]


def lattice_graph(lattices: list[Lattice], states: str) -> Graph:
    building = Building(states)
    weights, *initial = (building.add("parameter") for _ in range(3))
    losses = []
    for lattice in lattices:
        before: list[list[int]] = []
        for index, sources in enumerate(lattice):
            start = initial[: len(states)]
            before.append(building.state(index, sources, before) if sources else start)
            logits = building.add("matmul", weights, before[-1][0])
            losses.append(building.add("loss", logits))
    building.add("reduce", *losses)
    return graph_of(building.types, building.args, follows=building.follows)


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
