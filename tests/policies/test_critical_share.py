"""The project's own policy: against exact search, and at the bound on trees.

The beam searches with the same score are also tested here. test_released_counts.py has fixed counts
on lattices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.lanes import MAX_SHORT
from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.contracts.policy import LearningSettings, learn_policy, load_policy
from dynbatch.harness.granularity.operators import build_operator_graph
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.policies.parts import urgency
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph
from dynbatch.harness.values.schedule import check_schedule
from tests.support.corpora import first_mini_batch, train_part
from tests.support.instances import build
from tests.support.policies import batches
from tests.support.random_graphs import graph_of, graphs, minimum_batches

# Critical share in plain Python, as docs/critical_share.md defines it: slow, and the reference.


N_WEIGHED = 4  # number of highest levels with a nonzero weight
Places = list[int]


@dataclass(frozen=True)
class _Plain:
    """Vertices without blocks: the type and the arguments of each, and the cost of each type."""

    types: list[int]
    args: list[list[int]]
    cost: list[float]


def plain_batches(graph: Graph) -> list[list[int]]:
    """Return the vertices of every batch, in increasing order."""
    types = graph.types.tolist()
    args = [graph.select_args(v).tolist() for v in range(len(types))]
    follows = graph.follows.tolist()
    block = [v if follows[t] == NO_TYPE else args[v][0] for v, t in enumerate(types)]
    blocks = [v for v in range(len(types)) if block[v] == v]
    number = {v: k for k, v in enumerate(blocks)}
    made = [
        1 + sum(led == t and f in types for f, led in enumerate(follows))
        for t in range(len(follows))
    ]
    plain = _Plain(
        [types[v] for v in blocks],
        [[number[block[a]] for a in args[v]] for v in blocks],
        [one / max(made, default=1) for one in made],
    )
    type_of, late = _latest(plain)
    early = _without_spare(plain, type_of, late)
    of_blocks = _better(plain, early, late, any(led != NO_TYPE for led in follows))
    keys = [
        (of_blocks[number[block[v]]], 0 if block[v] == v else 1, 0 if block[v] == v else t)
        for v, t in enumerate(types)
    ]
    return [[v for v in range(len(types)) if keys[v] == key] for key in sorted(set(keys))]


def _levels(plain: _Plain) -> tuple[list[int], list[dict[int, int]]]:
    """Return the chained types, and the level of every vertex on each of them."""
    present = sorted(set(plain.types) - {UNBATCHABLE})
    levels: list[dict[int, int]] = []
    for t, args in zip(plain.types, plain.args, strict=True):
        above = {k: max((levels[a][k] for a in args), default=0) for k in present}
        levels.append({k: level + (k == t) for k, level in above.items()})
    return [k for k in present if any(level[k] > 1 for level in levels)], levels


def _latest(plain: _Plain) -> tuple[list[int], Places]:
    """Return the type of every batch, and the latest possible batch of every vertex."""
    chained, levels = _levels(plain)
    n = len(plain.types)
    users = [sum(args.count(v) for args in plain.args) for v in range(n)]
    placed = [-1] * n
    chosen: list[int] = []
    arrived = [v for v in range(n) if users[v] == 0]  # in the order of becoming ready
    waits = dict.fromkeys(range(len(plain.cost)), -1)
    while arrived:
        ready: dict[int, list[int]] = {}
        for v in arrived:
            ready.setdefault(plain.types[v], []).append(v)
        if UNBATCHABLE in ready:
            t, members = UNBATCHABLE, ready[UNBATCHABLE][:1]
        else:
            waits = {k: waits[k] + 1 if k in ready else -1 for k in waits}
            reach = {
                t: {k: max(levels[v][k] for v in members) for k in chained}
                for t, members in ready.items()
            }
            left = {t: sum(plain.types[v] == t and placed[v] < 0 for v in range(n)) for t in ready}
            t = _choice(plain, ready, left, waits, chained, reach)
            members = ready[t]
            waits[t] = -1
        for v in members:
            placed[v] = len(chosen)
            arrived.remove(v)
        for v in members:
            for arg in plain.args[v]:
                users[arg] -= 1
                if users[arg] == 0:
                    arrived.append(arg)
        chosen.append(t)
    return chosen[::-1], [len(chosen) - 1 - b for b in placed]


def _choice(
    plain: _Plain,
    ready: dict[int, list[int]],
    left: dict[int, int],
    waits: dict[int, int],
    chained: Sequence[int],
    reach: dict[int, dict[int, int]],
) -> int:
    """Return a safe type, or else the smallest type with the highest score."""
    for t in sorted(ready):
        if len(ready[t]) == left[t]:
            return t
    for k in chained:
        if k in ready and all(reach[t][k] == 0 for t in ready if t != k):
            return k
    longest = {k: max(reach[t][k] for t in ready) for k in chained}
    held = {t: {k: _held(reach[t][k], longest[k]) for k in chained} for t in ready}
    worth = {k: plain.cost[k] / max(sum(held[t][k] for t in ready), 1) for k in chained}
    scores = {}
    for t in sorted(ready):
        cost = plain.cost[t]
        score = urgency.READY * (len(ready[t]) / left[t]) - urgency.COST * cost
        score += urgency.WAIT * min(waits[t], urgency.MAX_WAIT)
        others = 0.0
        for k in chained:
            if k != t:
                others += worth[k] * held[t][k]
                continue
            score += urgency.OWN * (worth[k] * held[t][k])
            if longest[k] > 0 and [s for s in ready if reach[s][k] == longest[k]] == [k]:
                score += urgency.PROGRESS * cost
        n_chains = sum(level > 0 for level in longest.values())
        scores[t] = score + urgency.OTHERS * others / max(n_chains, 1)
    return max(sorted(scores), key=lambda t: scores[t])


def _held(reached: int, longest: int) -> int:
    """Return the weight, in eighths of the longest chain's, of a type with this level."""
    below = longest - reached
    return 2 ** (N_WEIGHED - 1 - below) if reached > 0 and below < N_WEIGHED else 0


def _without_spare(plain: _Plain, type_of: list[int], late: Places) -> Places:
    """Move all vertices to early batches, and drop batches that no vertex is bound to."""
    every = set(range(len(type_of)))
    early = _earliest(plain, type_of, late, every)
    bound = {b for b, other in zip(early, late, strict=True) if b == other}
    if bound != every:
        early = _earliest(plain, type_of, late, bound)
    used = sorted(set(early))
    return [used.index(b) for b in early]


def _earliest(plain: _Plain, type_of: list[int], late: Places, kept: set[int]) -> Places:
    """Return the first usable batch after the arguments' for each vertex, else its latest one.

    Usable are the batches in `kept`, and latest ones of previous vertices.
    """
    kept, early = set(kept), []
    for v, t in enumerate(plain.types):
        first = max((early[a] + 1 for a in plain.args[v]), default=0)
        found = [b for b in sorted(kept) if first <= b <= late[v] and type_of[b] == t]
        early.append(found[0] if found and t != UNBATCHABLE else late[v])
        kept.add(early[v])
    return early


def _better(plain: _Plain, early: Places, late: Places, has_followers: bool) -> Places:
    """Return the early batches if they are fewer, or else if they read from fewer other batches."""
    if len(set(early)) < len(set(late)):
        return early
    if has_followers:
        return late
    return early if _n_sources(plain, early) < _n_sources(plain, late) else late


def _n_sources(plain: _Plain, place: Places) -> int:
    return len({(place[v], place[a]) for v, args in enumerate(plain.args) for a in args})


SIZES = ModelSizes(4, {"words": 20_000, "characters": 20_000, "classes": 5})


def count(policy: str, graph: Graph) -> int:
    schedule = load_policy(policy)(graph)
    check_schedule(graph, schedule)
    return schedule.n_batches


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
    policies = ("agenda", "sufficient", "critical_share", "beam_2", "beam_20")
    for _ in range(100):
        graph = random_dag(rng)
        fewest = minimum_batches(graph)
        reached.update(policy for policy in policies if count(policy, graph) == fewest)
    assert [reached[policy] for policy in policies] == [43, 90, 99, 100, 100]


@pytest.mark.parametrize("model", ["tree_lstm", "tree_gru", "mv_rnn"])
def test_trees_reach_the_bound(data_root: Path, model: str) -> None:
    trees = train_part("sst", data_root).instances
    built = build(model, SIZES)
    for first, size in ((0, 1), (0, 8), (0, 64), (500, 128)):
        mini_batch = built.mini_batch(trees[first : first + size])
        for graph in (mini_batch.graph, build_released_graph(built, mini_batch)):
            assert count("critical_share", graph) == compute_lower_bound(graph)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["tree_lstm", "tree_gru", "lattice_lstm", "lattice_gru", "gated_lattice_lstm"]
)
def test_fewer_batches_of_operators_than_a_machine_learned_on_them(
    data_root: Path, model: str
) -> None:
    built = build(model, SIZES)
    graph = build_operator_graph(built, first_mini_batch(built, data_root, 8))
    learned = learn_policy("fsm_sort", [graph], LearningSettings())(graph).n_batches
    assert compute_lower_bound(graph) <= count("critical_share", graph) < learned


def test_counts_on_trees_of_two_types(data_root: Path) -> None:
    ratios = []
    for seed in range(10):
        model = build("tree_lstm_2type", SIZES, type_seed=seed)
        graph = build_released_graph(model, first_mini_batch(model, data_root, 32))
        ratios.append(count("critical_share", graph) / compute_lower_bound(graph))
    assert np.mean(ratios) == pytest.approx(1.168, abs=5e-4)


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


@settings(deadline=None, max_examples=500)  # the first call compiles
@given(graph=st.one_of(graphs(max_vertices=40, max_types=7), instances_of_cells()))
def test_random_graphs_are_scheduled_as_defined(graph: Graph) -> None:
    assert batches(load_policy("critical_share")(graph)) == plain_batches(graph)


@pytest.mark.parametrize("length", [MAX_SHORT - 1, MAX_SHORT, MAX_SHORT + 1, 400])
def test_chains_that_8_bits_cannot_count_are_scheduled_as_defined(length: int) -> None:
    types = [1] * length + [2, 1, 2, 1, 2, 2]
    args = [[v - 1] if v else [] for v in range(length + 3)] + [[], [length + 3], [length + 4]]
    graph = graph_of(types, args)
    assert batches(load_policy("critical_share")(graph)) == plain_batches(graph)


@pytest.mark.parametrize("n_types", [13, 14, 15, 16, 17, 29, 33, 70])
def test_many_types_are_scheduled_as_defined(n_types: int) -> None:
    rng = np.random.default_rng(n_types)
    for _ in range(5):
        n = 4 * n_types
        args = [sorted(set(rng.integers(0, v, 2).tolist())) if v > 5 else [] for v in range(n)]
        graph = graph_of(rng.integers(1, n_types + 1, n).tolist(), args)
        assert batches(load_policy("critical_share")(graph)) == plain_batches(graph)
