"""Trees that peers grow: what the program grows, in either order."""

from __future__ import annotations

import pytest

from harness.contracts.model import ModelSizes
from harness.models.drnn import DRNN
from harness.values.instances import Chain
from systems.grown_trees import NONE, GrownTree, grown_tree
from tests.support.sentences import random_sentences

MODEL = DRNN(ModelSizes(4, {"words": 50, "classes": 3}), p_child=0.8, generations=4, siblings=3)
SENTENCES: list[Chain] = random_sentences("chain", (2,) * 12, MODEL.sizes, seed=2)
TREES = [grown_tree(MODEL, sentence) for sentence in SENTENCES]


@pytest.mark.parametrize(("tree", "sentence"), list(zip(TREES, SENTENCES, strict=True)))
def test_a_tree_is_the_graph_of_the_program(tree: GrownTree, sentence: Chain) -> None:
    """Parents and siblings of all outputs, in the order of outputs."""
    mini_batch = MODEL.mini_batch([sentence])
    rank_of = {int(vertex): rank for rank, vertex in enumerate(mini_batch.outputs)}
    for vertex, rank in rank_of.items():
        read = [rank_of[arg] for arg in mini_batch.graph.args_of(vertex).tolist()]
        node = tree.nodes[rank]
        assert read == [other for other in (node.parent, node.before) if other != NONE]
    assert len(tree.nodes) == len(rank_of)


def test_trees_differ_and_are_no_chains() -> None:
    assert len({len(tree.nodes) for tree in TREES}) > 3
    assert any(len(wave) > 2 for tree in TREES for wave in tree.waves())


@pytest.mark.parametrize("tree", TREES)
def test_waves_are_as_many_as_rounds_need(tree: GrownTree) -> None:
    """Every node a wave behind the later of those that it reads; together all nodes."""
    waves = tree.waves()
    when = {rank: step for step, wave in enumerate(waves) for rank in wave}
    assert sorted(when) == list(range(len(tree.nodes)))
    for rank, node in enumerate(tree.nodes[1:], start=1):
        after = node.parent if node.before == NONE else node.before
        assert when[rank] == when[after] + 1


@pytest.mark.parametrize("tree", TREES)
def test_a_recursion_finishes_what_is_below_before_the_next_sibling(tree: GrownTree) -> None:
    recursed: list[int] = []

    def visit(rank: int) -> None:
        recursed.append(rank)
        for other in (tree.nodes[rank].child, tree.nodes[rank].sibling):
            if other != NONE:
                visit(other)

    visit(0)
    assert tree.in_turn() == recursed
