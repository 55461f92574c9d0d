"""Plans of mini-batches: every row has its vertex, and values are computed before they are read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.models.parts.lattices import join_arcs
from dynbatch.harness.values.instances import Chain, Lattice, Tree
from dynbatch.systems.plans.lattices import batch_points, plan_lattice_rows
from dynbatch.systems.plans.programs import NONE, GrownTree, grow_tree
from dynbatch.systems.plans.sentences import plan_stairs
from dynbatch.systems.plans.trees import MatrixRows, TreeRows, plan_matrix_rows, plan_tree_rows
from tests.support.instances import LATTICES, build, random_instances, random_lattice
from tests.support.run_adapter import LETTERS, SIZES, trees_of

LEAVES = ((1,), (1, 1), (2,), (5, 1, 9), (1, 2, 9, 4, 13))
LENGTHS = ([1], [3, 3], [1, 5, 2, 5], [7, 1, 1, 4, 2])
MINI_BATCHES = (
    LATTICES,
    LATTICES[2:3],
    tuple(random_lattice(n, LETTERS, np.random.default_rng(n)) for n in (9, 1, 14, 14, 3)),
)
OF_WORDS = ModelSizes(4, {"words": 50, "classes": 3})
GROWING = build("drnn", OF_WORDS, p_child=0.8, generations=4, siblings=3)
SENTENCES: list[Chain] = random_instances("chain", (2,) * 12, GROWING.sizes, seed=2)
GROWN = [grow_tree(GROWING, sentence) for sentence in SENTENCES]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("round_up_to", [1, 4])
def test_every_row_follows_its_own_sentence(lengths: list[int], round_up_to: int) -> None:
    """The previous row has the previous place, or when read backwards the next place."""
    plan, order = plan_stairs(np.array(lengths), round_up_to)
    assert len(plan.widths) % round_up_to == 0
    assert plan.widths.tolist() == sorted(plan.widths, reverse=True)
    k, starts = len(lengths), np.cumsum(lengths) - lengths
    ends = np.cumsum(lengths) - 1
    assert plan.widths[0] == k
    assert plan.along[:k].tolist() == starts[order].tolist()
    assert plan.against[:k].tolist() == ends[order].tolist()
    assert (plan.along[plan.before] == plan.along[k:] - 1).all()
    assert (plan.against[plan.before] == plan.against[k:] + 1).all()


def children_of(trees: Sequence[Tree]) -> np.ndarray:
    """Return left and right children of all vertices (n, 2) in canonical order; -1 for leaves."""
    n_before, found = 0, []
    for tree in trees:
        both = np.stack([tree.left, tree.right], axis=1)
        found.append(np.where(both >= 0, both + n_before, -1))
        n_before += tree.n_vertices
    return np.concatenate(found)


def assert_children_come_first(plan: TreeRows | MatrixRows, trees: Sequence[Tree]) -> None:
    """Check that rows read their children in earlier batches, and that places are inverse."""
    assert sorted(plan.order) == list(range(len(plan.order)))
    row_of = np.argsort(plan.order)
    read = plan.children.reshape(-1, 2)
    wanted = children_of(trees)[plan.order]
    n_leaves = plan.sizes[0]
    assert np.all(wanted[:n_leaves] < 0)
    assert np.array_equal(row_of[wanted[n_leaves:]], read)
    batch = np.repeat(np.arange(len(plan.sizes)), plan.sizes)
    assert np.all(batch[read] < batch[n_leaves:, None])
    places = plan.places
    have_parent = places < read.size
    assert np.array_equal(read.ravel()[places[have_parent]], np.flatnonzero(have_parent))
    assert np.sum(~have_parent) == len(trees)


@pytest.mark.parametrize("leaves", LEAVES)
def test_rows_follow_their_children_and_two_types_are_never_in_one_batch(
    leaves: tuple[int, ...],
) -> None:
    trees = trees_of(leaves)
    model = build("tree_lstm_2type", SIZES, type_seed=1)
    plain, plan = plan_tree_rows(trees), plan_tree_rows(trees, model.assign_kinds)
    assert_children_come_first(plain, trees)
    assert len(plain.sizes) == 1 + max(tree.height for tree in trees)
    assert_children_come_first(plan, trees)
    types = model.mini_batch(trees).graph.types[plan.order]
    batches = np.split(types, np.cumsum(plan.sizes)[:-1])
    assert all(len(set(batch)) == 1 for batch in batches)
    assert len(plan.sizes) > len(plain.sizes) or len(set(types)) < 3


@pytest.mark.parametrize("leaves", LEAVES)
def test_matrix_rows_match_positions_read_by_parents(leaves: tuple[int, ...]) -> None:
    trees = trees_of(leaves)
    plan = plan_matrix_rows(trees)
    assert_children_come_first(plan, trees)
    n_internal, n_leaves = len(plan.children) // 2, plan.sizes[0]
    assert np.array_equal(plan.sides, plan.children.reshape(-1, 2).T)
    readers = plan.sides.reshape(-1)  # row of the vertex of every place
    inner = np.arange(n_leaves, n_leaves + len(plan.inner_places))
    assert np.array_equal(readers[plan.inner_places], inner)
    assert np.array_equal(plan.words[readers[plan.leaf_places]], plan.leaf_words)
    both = np.concatenate([plan.inner_places, plan.leaf_places])
    assert sorted(both.tolist()) == list(range(2 * n_internal))
    n_roots = sum(n > 1 for n in leaves)
    assert n_internal - len(plan.inner_places) == n_roots
    assert len(plan.sizes) == 1 or plan.sizes[-1] == n_roots


of_lattices = pytest.mark.parametrize("lattices", MINI_BATCHES, ids=["small", "no words", "random"])


@of_lattices
def test_every_state_and_every_arc_is_planned_once(lattices: Sequence[Lattice]) -> None:
    """Characters and words are compared by the rows of both states and their ids."""
    plan = plan_lattice_rows(lattices)
    tags = np.concatenate([lattice.tags for lattice in lattices])
    assert sorted(plan.order) == list(range(len(tags)))
    assert plan.labels.tolist() == tags[plan.order].tolist()
    arcs = join_arcs(lattices)
    wanted = set(zip(arcs.source, arcs.target, arcs.rank > 0, arcs.token, strict=True))
    order, rows = plan.order, range(plan.k, len(plan.order))
    before, ids = plan.before.tolist(), plan.characters.tolist()
    found = [(order[b], order[r], False, i) for b, r, i in zip(before, rows, ids, strict=True)]
    ends = zip(plan.sources.tolist(), plan.targets.tolist(), plan.words.tolist(), strict=True)
    found += [(order[source], order[target], True, i) for source, target, i in ends]
    assert len(found) == len(arcs.source)
    assert set(found) == wanted


@of_lattices
def test_nothing_is_read_before_it_is_complete(lattices: Sequence[Lattice]) -> None:
    """Words run before characters: a state is complete after its last arc."""
    plan = plan_lattice_rows(lattices)
    missing = np.bincount(plan.targets, minlength=len(plan.order)) + 1  # words and a character
    missing[: plan.k] = 0
    rows, words = (np.cumsum([0, *sizes]) for sizes in (plan.sizes, plan.word_sizes))
    for number, own_words in enumerate(plan.batches, start=1):
        if own_words is not None:
            batch = slice(*words[own_words : own_words + 2])
            assert not missing[plan.sources[batch]].any()
            np.subtract.at(missing, plan.targets[batch], 1)
        own = np.arange(*rows[number : number + 2])
        before = plan.before[own - plan.k]
        assert before.tolist() == (rows[number - 1] + np.arange(len(own))).tolist()
        assert not missing[before].any()
        missing[own] -= 1
    assert not missing.any()


@pytest.mark.parametrize("seed", range(20))
def test_no_fewer_batches_of_words_do(seed: int) -> None:
    """All smaller sets of steps fail, for words of few steps."""
    random = np.random.default_rng(seed)
    n_steps, n_words = 8, int(random.integers(0, 7))
    begins = random.integers(0, n_steps - 2, n_words)
    ends = np.minimum(begins + 2 + random.integers(0, 3, n_words), n_steps - 1)
    newest = np.full(n_steps, -1)
    np.maximum.at(newest, ends, begins)
    points = batch_points(newest).tolist()
    assert serves(points, begins, ends)
    for fewer in combinations(range(n_steps), max(0, len(points) - 1)):
        assert not serves(fewer, begins, ends) or not points


def serves(points: Sequence[int], begins: np.ndarray, ends: np.ndarray) -> bool:
    """Check that every word has a step after its start and up to its end."""
    return all(
        any(begin < point <= end for point in points)
        for begin, end in zip(begins, ends, strict=True)
    )


@pytest.mark.parametrize(("tree", "sentence"), list(zip(GROWN, SENTENCES, strict=True)))
def test_a_tree_is_the_graph_of_the_program(tree: GrownTree, sentence: Chain) -> None:
    """Parents and siblings of all outputs match the graph, in the order of outputs.

    There are as many waves as graph segments: every node is one wave after the later of the nodes
    that it reads. A recursion finishes the nodes below a node before its next sibling.
    """
    mini_batch = GROWING.mini_batch([sentence])
    rank_of = {int(vertex): rank for rank, vertex in enumerate(mini_batch.outputs)}
    for vertex, rank in rank_of.items():
        read = [rank_of[arg] for arg in mini_batch.graph.select_args(vertex).tolist()]
        node = tree.nodes[rank]
        assert read == [other for other in (node.parent, node.before) if other != NONE]
    assert len(tree.nodes) == len(rank_of)
    when = {rank: step for step, wave in enumerate(tree.list_waves()) for rank in wave}
    assert sorted(when) == list(range(len(tree.nodes)))
    for rank, node in enumerate(tree.nodes[1:], start=1):
        after = node.parent if node.before == NONE else node.before
        assert when[rank] == when[after] + 1
    assert tree.list_depth_first() == recursed(tree, 0)


def recursed(tree: GrownTree, rank: int) -> list[int]:
    node = tree.nodes[rank]
    others = [other for other in (node.child, node.sibling) if other != NONE]
    return [rank, *(below for other in others for below in recursed(tree, other))]


def test_trees_differ_and_are_no_chains() -> None:
    assert len({len(tree.nodes) for tree in GROWN}) > 3
    assert any(len(wave) > 2 for tree in GROWN for wave in tree.list_waves())
