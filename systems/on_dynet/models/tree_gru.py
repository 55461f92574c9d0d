"""Binary Tree-GRU in DyNet, written for one tree; DyNet batches across trees and vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.contracts.model import Model
from harness.values.instances import Tree
from systems.on_dynet.classifier import classified
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Vertex = tuple[int, int, int, int]  # word (-1: internal), left child, right child, label


class Network:
    """Equations of harness.models.tree_gru, with one affine transform for every gate.

    z h + (1 - z) c is written c + z (h - c), since DyNet has no batched kernel of 1 - z.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.embedding = store.table("embedding")
        self.leaf = [
            *store.matrices("W", 2), *store.matrices("W_c"),
            *store.vectors("b_leaf", 2), *store.vectors("b_leaf_c"),
        ]  # fmt: skip
        self.first = [*store.matrices("U_1", 2), *store.matrices("U_c1")]
        self.second = [*store.matrices("U_2", 2), *store.matrices("U_c2")]
        self.biases = [*store.vectors("b", 2), *store.vectors("b_c")]
        self.classifier = store.matrices("W_out")[0]

    def read(self, tree: Tree) -> list[Vertex]:
        """A tree as a DyNet program holds it: Python numbers, children before parents."""
        columns = (tree.words, tree.left, tree.right, tree.labels)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def build(self, trees: Sequence[list[Vertex]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every vertex."""
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        lookup, esum, table = dy.lookup, dy.esum, self.embedding
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        W_r, W_z, W_c, bl_r, bl_z, bl_c = (p.expr(True) for p in self.leaf)
        U_r1, U_z1, U_c1 = (p.expr(True) for p in self.first)
        U_r2, U_z2, U_c2 = (p.expr(True) for p in self.second)
        b_r, b_z, b_c = (p.expr(True) for p in self.biases)
        hidden: list[Any] = []
        labels: list[int] = []
        for tree in trees:
            h: list[Any] = []
            for word, left, right, label in tree:
                if word >= 0:
                    x = lookup(table, word)
                    r = logistic(affine([bl_r, W_r, x]))
                    c = tanh(affine([bl_c, W_c, cmult(r, x)]))
                    h.append(c + cmult(logistic(affine([bl_z, W_z, x])), x - c))
                else:
                    h_1, h_2 = h[left], h[right]
                    r_1 = logistic(affine([b_r, U_r1, h_1]))
                    r_2 = logistic(affine([b_r, U_r2, h_2]))
                    c_1 = tanh(affine([b_c, U_c1, cmult(r_1, h_1)]))
                    c_2 = tanh(affine([b_c, U_c2, cmult(r_2, h_2)]))
                    z_1 = logistic(affine([b_z, U_z1, h_1]))
                    z_2 = logistic(affine([b_z, U_z2, h_2]))
                    steps = [c_1, cmult(z_1, h_1 - c_1), c_2, cmult(z_2, h_2 - c_2)]
                    h.append(esum(steps) * 0.5)
                labels.append(label)
            hidden += h
        yield classified(self.classifier, hidden, labels)


NETWORKS = {"tree_gru": Network}
