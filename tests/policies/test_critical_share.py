"""The project's own policy: against exact search, at the bound on trees, fixed counts on lattices.

The beam searches with the same score are also tested here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.lanes import MAX_SHORT
from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.contracts.policy import LearningSettings, learn_policy, load_policy
from dynbatch.harness.granularity.operators import build_operator_graph
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.models.gated_lattice_lstm import GatedLatticeLSTM
from dynbatch.harness.models.lattice_gru import LatticeGRU
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.models.mv_rnn import MVRNN
from dynbatch.harness.models.tree_gru import TreeGRU
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.models.tree_lstm_2type import TreeLSTM2Type
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule, check_schedule
from tests.support.corpora import train_part
from tests.support.exact_minimum import minimum_batches
from tests.support.plain_critical_share import plain_batches
from tests.support.random_graphs import graph_of, graphs

POLICIES = ("critical_share", "beam_2", "beam_20")
SIZES = ModelSizes(4, {"words": 20_000, "characters": 20_000, "classes": 5})
LATTICES = {
    # model, batch size: bound, then the policies in order
    (LatticeLSTM, 8): (354, 378, 376, 372),
    (LatticeGRU, 8): (252, 273, 271, 271),
    (LatticeLSTM, 32): (516, 551, 550, 546),
    (LatticeGRU, 32): (368, 405, 402, 398),
}


def count(policy: str, graph: Graph) -> int:
    schedule = load_policy(policy)(graph)
    check_schedule(graph, schedule)
    return schedule.n_batches


@settings(deadline=None, max_examples=30)
@given(graph=graphs(max_vertices=14))
def test_never_below_the_exact_minimum_and_beams_never_worse(graph: Graph) -> None:
    own = count("critical_share", graph)
    for beam in ("beam_2", "beam_20"):
        assert minimum_batches(graph) <= count(beam, graph) <= own


def test_more_types_than_a_word_has_bits() -> None:
    # Two chains with every third type twice, 150 types in all.
    types = [*range(1, 150), *range(1, 150, 3)] * 2
    half = len(types) // 2
    args = [[] if v in (0, half) else [v - 1] for v in range(2 * half)]
    assert count("critical_share", graph_of(types, args)) == half


@pytest.mark.parametrize("length", [2**16 - 2, 2**16 + 5])
def test_chains_longer_than_levels_can_tell(length: int) -> None:
    # Levels end at 65,535; a chain of another type is attached to the end.
    types = [1] * length + [2] * 3 + [1] * 2
    args = [[v - 1] if v else [] for v in range(length + 3)] + [[], [length + 3]]
    graph = graph_of(types, args)
    assert count("critical_share", graph) == compute_lower_bound(graph) == length + 3


def random_dag(rng: np.random.Generator) -> Graph:
    """Return a graph of three types, with at most two arguments among the six previous vertices."""
    n = int(rng.integers(6, 15))
    types = rng.integers(1, 4, n).tolist()
    near = [rng.integers(max(0, v - 6), max(v, 1), size=rng.integers(0, 3)) for v in range(n)]
    return graph_of(types, [sorted(set(a.tolist())) if v else [] for v, a in enumerate(near)])


def test_frequency_of_reaching_the_exact_minimum() -> None:
    rng = np.random.default_rng(0)
    reached: Counter[str] = Counter()
    policies = ("agenda", "sufficient", *POLICIES)
    for _ in range(100):
        graph = random_dag(rng)
        fewest = minimum_batches(graph)
        reached.update(policy for policy in policies if count(policy, graph) == fewest)
    assert [reached[policy] for policy in policies] == [43, 90, 99, 100, 100]


def test_moving_vertices_to_earlier_batches_reaches_the_minimum() -> None:
    # Paths 3-1-2, 2-3 and 1: no type occurs twice on a path, so no type is chained, and the
    # smallest type goes first: five batches. 2, 3, 1, 2 contains all three paths; moving vertices
    # to earlier batches empties the fifth.
    graph = graph_of([3, 1, 2, 3, 2, 1], [[], [0], [], [2], [1], []])
    assert minimum_batches(graph) == 4
    assert count("critical_share", graph) == 4
    assert count("beam_2", graph) == 4


@pytest.mark.parametrize("model", [TreeLSTM, TreeGRU, MVRNN])
def test_trees_reach_the_bound(data_root: Path, model: type[Model]) -> None:
    trees = train_part("sst", data_root).instances
    built = model(SIZES)
    for first, size in ((0, 1), (0, 8), (0, 64), (500, 128)):
        mini_batch = built.mini_batch(trees[first : first + size])
        for graph in (mini_batch.graph, build_released_graph(built, mini_batch)):
            assert count("critical_share", graph) == compute_lower_bound(graph)


@pytest.mark.parametrize(("model", "batch_size"), LATTICES)
def test_counts_on_lattices(data_root: Path, model: type[Model], batch_size: int) -> None:
    if not (data_root / "lattice").exists():
        pytest.skip(f"{data_root / 'lattice'} is missing")
    corpus = train_part("weibo_lattice", data_root)
    built = model(ModelSizes(4, corpus.sizes))
    graph = build_released_graph(built, built.mini_batch(corpus.instances[:batch_size]))
    counts = [count(policy, graph) for policy in POLICIES]
    assert (compute_lower_bound(graph), *counts) == LATTICES[model, batch_size]


@pytest.mark.slow
@pytest.mark.parametrize("model", [TreeLSTM, TreeGRU, LatticeLSTM, LatticeGRU, GatedLatticeLSTM])
def test_fewer_batches_of_operators_than_a_machine_learned_on_them(
    data_root: Path, model: type[Model]
) -> None:
    name = "sst" if issubclass(model, TreeLSTM | TreeGRU) else "weibo_lattice"
    if name != "sst" and not (data_root / "lattice").exists():
        pytest.skip(f"{data_root / 'lattice'} is missing")
    corpus = train_part(name, data_root)
    built = model(ModelSizes(4, corpus.sizes))
    graph = build_operator_graph(built, built.mini_batch(corpus.instances[:8]))
    learned = learn_policy("fsm_sort", [graph], LearningSettings())(graph).n_batches
    assert compute_lower_bound(graph) <= count("critical_share", graph) < learned


def test_counts_on_trees_of_two_types(data_root: Path) -> None:
    trees = train_part("sst", data_root).instances[:32]
    ratios = []
    for seed in range(10):
        model = TreeLSTM2Type(SIZES, type_seed=seed)
        graph = build_released_graph(model, model.mini_batch(trees))
        ratios.append(count("critical_share", graph) / compute_lower_bound(graph))
    assert np.mean(ratios) == pytest.approx(1.168, abs=5e-4)


def batches_of(schedule: Schedule) -> list[list[int]]:
    return [schedule.select_batch(index).tolist() for index in range(schedule.n_batches)]


@settings(deadline=None, max_examples=300)  # the first call compiles
@given(graph=graphs(max_vertices=40, max_types=7))
def test_random_graphs_are_scheduled_as_defined(graph: Graph) -> None:
    assert batches_of(load_policy("critical_share")(graph)) == plain_batches(graph)


@st.composite
def instances_of_cells(draw: st.DrawFn) -> Graph:
    """Return trees, chains and lattices of one cell of a few operators, as models have.

    Every operator reads others of its cell, and some those of earlier cells.
    """
    n_operators = draw(st.integers(1, 8))
    kinds = draw(st.permutations(range(1, n_operators + 1)))
    inside = [
        sorted(draw(st.sets(st.integers(0, k - 1), max_size=2))) if k else []
        for k in range(n_operators)
    ]
    from_before = [draw(st.sampled_from((-1, n_operators - 1, k))) for k in range(n_operators)]
    types: list[int] = []
    args: list[list[int]] = []
    for _ in range(draw(st.integers(1, 4))):
        cells: list[int] = []
        for _ in range(draw(st.integers(1, 6))):
            before = draw(st.sets(st.sampled_from(cells), max_size=2)) if cells else set()
            first = len(types)
            for k in range(n_operators):
                reads = [first + i for i in inside[k]]
                if from_before[k] >= 0:
                    reads += [cell + from_before[k] for cell in sorted(before)]
                types.append(kinds[k])
                args.append(reads)
            cells.append(first)
    return graph_of(types, args)


@settings(deadline=None, max_examples=200)
@given(graph=instances_of_cells())
def test_cells_of_operators_are_scheduled_as_defined(graph: Graph) -> None:
    assert batches_of(load_policy("critical_share")(graph)) == plain_batches(graph)


@pytest.mark.parametrize("length", [MAX_SHORT - 1, MAX_SHORT, MAX_SHORT + 1, 400])
def test_chains_that_8_bits_cannot_count_are_scheduled_as_defined(length: int) -> None:
    types = [1] * length + [2, 1, 2, 1, 2, 2]
    args = [[v - 1] if v else [] for v in range(length + 3)] + [[], [length + 3], [length + 4]]
    graph = graph_of(types, args)
    assert batches_of(load_policy("critical_share")(graph)) == plain_batches(graph)


@pytest.mark.parametrize("n_types", [13, 14, 15, 16, 17, 29, 33, 70])
def test_many_types_are_scheduled_as_defined(n_types: int) -> None:
    rng = np.random.default_rng(n_types)
    for _ in range(5):
        n = 4 * n_types
        args = [sorted(set(rng.integers(0, v, 2).tolist())) if v > 5 else [] for v in range(n)]
        graph = graph_of(rng.integers(1, n_types + 1, n).tolist(), args)
        assert batches_of(load_policy("critical_share")(graph)) == plain_batches(graph)
