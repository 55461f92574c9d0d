"""DRNN in DyNet: trees that grow node by node, those of all instances side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dynet as dy
import numpy as np

from harness.models.drnn import DRNN
from harness.values.instances import Chain
from systems.grown_trees import Grown, GrownTree, grown_tree
from systems.on_dynet.classifier import classified
from systems.on_dynet.rounds import Part
from systems.on_dynet.runtime import ParameterStore
from systems.on_dynet.together import first_numbers


class Branch(NamedTuple):
    """A node that is still to be computed, from its parent and the sibling before it, if any."""

    node: Grown
    parent: Any
    before: Any


class Growing(NamedTuple):
    """One tree: states of its nodes by rank, and where it goes on, the next one last."""

    states: list[Any]
    branches: list[Branch]


class Network:
    """Equations of harness.models.drnn; each tree as its recursion goes, children before siblings.

    The gate's number is repeated for all elements by a product with ones, which DyNet batches; its
    product of a vector and a number does not batch.
    """

    def __init__(self, model: DRNN, store: ParameterStore) -> None:
        self.model = model
        self.embedding = store.table("embedding")
        self.cell = [*store.vectors("b"), *store.matrices("U_a"), *store.matrices("U_f")]
        self.cell += store.matrices("u")
        # A parameter that no trainer knows, since products batch by the node of the left factor.
        ones = np.ones((model.sizes.hidden_size, 1), dtype=np.float32)
        self.ones = dy.ParameterCollection().parameters_from_numpy(ones)
        self.classifier = store.matrices("W_out")[0]

    def read(self, chain: Chain) -> GrownTree:
        """What grows, and where each node stands among the outputs."""
        return grown_tree(self.model, chain)

    def build(self, trees: Sequence[GrownTree]) -> Iterator[Part]:
        """Nodes of all trees, until none grows any more; then the scores of all nodes."""
        self._weights = [*(p.expr(True) for p in self.cell), self.ones.expr(False)]
        growing = [Growing([None] * tree.n_nodes, []) for tree in trees]
        made = [
            (own, Branch(tree.root, None, None), dy.lookup(self.embedding, tree.word))
            for own, tree in zip(growing, trees, strict=True)
        ]
        while made:
            yield from first_numbers([state for *_, state in made])
            for own, branch, state in made:
                _decide(own, branch, state)
            made = [
                (own, branch, self._state(branch))
                for own in growing
                for branch in self.taken(own.branches)
            ]
        states = [state for own in growing for state in own.states]
        yield classified(
            self.classifier, states, [t.label for t in trees for _ in range(t.n_nodes)]
        )

    def taken(self, branches: list[Branch]) -> list[Branch]:
        """Take those that a tree goes on with in this round: one."""
        return [branches.pop()] if branches else []

    def _state(self, branch: Branch) -> Any:
        b, U_a, U_f, u, ones = self._weights
        terms = [b, U_a, branch.parent]
        if branch.before is not None:
            terms += [U_f, branch.before]
        h = dy.tanh(dy.affine_transform(terms))
        return dy.cmult(h, ones * dy.logistic(u * h))


def _decide(own: Growing, branch: Branch, state: Any) -> None:
    """Go on with what grows from a node, now that its value is there."""
    node, parent, _ = branch
    own.states[node.rank] = state
    if node.sibling is not None:
        own.branches.append(Branch(node.sibling, parent, state))
    if node.child is not None:
        own.branches.append(Branch(node.child, state, None))
