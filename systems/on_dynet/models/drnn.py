"""DRNN in DyNet: trees that grow node by node, those of all instances side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dynet as dy

from harness.models.drnn import DRNN
from harness.values.instances import Chain
from systems.on_dynet.classifier import classified
from systems.on_dynet.rounds import Part
from systems.on_dynet.runtime import ParameterStore
from systems.on_dynet.together import first_numbers
from systems.plans.programs import NONE, GrownTree, grown_tree


class Tree(NamedTuple):
    """What grows from a word, and its label.

    nodes: of each round behind the first those that grow: the node, its parent and the sibling
    before it (NONE: a first child), by rank.
    """

    word: int
    label: int
    rounds: list[list[tuple[int, int, int]]]
    n_nodes: int


class Network:
    """Equations of harness.models.drnn; each tree as its recursion goes, children before siblings.

    DyNet does not batch the product of a vector and a number. A product with ones, which batches,
    makes a vector of the number, and is no faster: measured on a busy machine, processor time of a
    mini-batch of 64, hidden 256, breadth first, by agenda and by depth 10.6 and 10.5 ms, without it
    10.5 and 10.6.
    """

    def __init__(self, model: DRNN, store: ParameterStore) -> None:
        self.model = model
        self.embedding = store.table("embedding")
        self.cell = [*store.vectors("b"), *store.matrices("U_a"), *store.matrices("U_f")]
        self.cell += store.matrices("u")
        self.classifier = store.matrices("W_out")[0]

    def read(self, chain: Chain) -> Tree:
        """What will grow, as values decide it."""
        tree = grown_tree(self.model, chain)
        rounds = [
            [(rank, tree.nodes[rank].parent, tree.nodes[rank].before) for rank in ranks]
            for ranks in self.growing(tree)
        ]
        return Tree(tree.word, tree.label, rounds[1:], len(tree.nodes))

    def growing(self, tree: GrownTree) -> list[list[int]]:
        """Nodes of each round: one."""
        return [[rank] for rank in tree.in_turn()]

    def build(self, trees: Sequence[Tree]) -> Iterator[Part]:
        """A round for each step of growing; then the scores of all nodes."""
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        b, U_a, U_f, u = (p.expr(True) for p in self.cell)
        newest = [dy.lookup(self.embedding, tree.word) for tree in trees]
        states: list[list[Any]] = [[None] * tree.n_nodes for tree in trees]
        for own, root in zip(states, newest, strict=True):
            own[0] = root
        step = 0
        while newest:
            yield from first_numbers(newest)
            newest = []
            for tree, h in zip(trees, states, strict=True):
                if step >= len(tree.rounds):
                    continue
                for node, parent, before in tree.rounds[step]:
                    if before == NONE:
                        x = tanh(affine([b, U_a, h[parent]]))
                    else:
                        x = tanh(affine([b, U_a, h[parent], U_f, h[before]]))
                    h[node] = cmult(x, logistic(u * x))
                    newest.append(h[node])
            step += 1
        labels = [tree.label for tree in trees for _ in range(tree.n_nodes)]
        yield classified(self.classifier, [h for own in states for h in own], labels)


NETWORKS = {"drnn": Network}
