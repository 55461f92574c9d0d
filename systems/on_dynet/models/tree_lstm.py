"""Binary Tree-LSTM in DyNet, written for one tree; DyNet batches across trees and vertices."""

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
    """Equations of harness.models.tree_lstm, with one affine transform for every gate.

    The operators are those of DyNet's own benchmark, but for c's sum of three, and the classifier
    once. Measured against other ways to write it (source build, agenda, batch 64 of SST, training,
    trees/s of the best pass at hidden 64 and 256): this one 4570 and 1310; without the sum of three
    4290 and 1300; without the classifier once either, 3790 and 1240; both children in one affine
    transform without concatenate 4490 and 1290; leaves by DyNet's own LSTM 3930 and 1160; i, o, u
    and the first f by vanilla_lstm_gates 4480 (beside 4210 of this one then) and 380. On an older
    machine, one affine transform of all gates and pick_range was 5 and 3 % slower.
    zeros_at_leaves: every leaf adds a constant of its own, see systems.on_dynet.constants_each.
    """

    zeros_at_leaves = False

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.embedding, self.width = store.table("embedding"), model.sizes.hidden_size
        self.leaf = [*store.matrices("W", 3), *store.vectors("b_leaf", 3)]
        self.internal = [*store.matrices("U", 3), *store.vectors("b", 3)]
        self.forget = [*store.matrices("F_1"), *store.matrices("F_2"), *store.vectors("b_f")]
        self.classifier = store.matrices("W_out")[0]

    def read(self, tree: Tree) -> list[Vertex]:
        """A tree as a DyNet program holds it: Python numbers, children before parents."""
        columns = (tree.words, tree.left, tree.right, tree.labels)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def build(self, trees: Sequence[list[Vertex]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every vertex."""
        # Local names and one expression per parameter and graph: attribute look-ups and repeated
        # parameter nodes would be most of what Python adds to DyNet's own cost. Without True,
        # DyNet would take the parameter for a constant, and give no gradient.
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        lookup, concatenate, esum = dy.lookup, dy.concatenate, dy.esum
        table, zeros_at_leaves, width = self.embedding, self.zeros_at_leaves, self.width
        W_i, W_o, W_u, bl_i, bl_o, bl_u = (p.expr(True) for p in self.leaf)
        U_i, U_o, U_u, b_i, b_o, b_u = (p.expr(True) for p in self.internal)
        F_1, F_2, b_f = (p.expr(True) for p in self.forget)
        hidden: list[Any] = []
        labels: list[int] = []
        for tree in trees:
            h: list[Any] = []
            c: list[Any] = []
            for word, left, right, label in tree:
                if word >= 0:
                    x = lookup(table, word)
                    c_v = cmult(logistic(affine([bl_i, W_i, x])), tanh(affine([bl_u, W_u, x])))
                    if zeros_at_leaves:
                        c_v = c_v + dy.zeros(width)
                    h_v = cmult(logistic(affine([bl_o, W_o, x])), tanh(c_v))
                else:
                    h_1, h_2 = h[left], h[right]
                    both = concatenate([h_1, h_2])
                    i, u = logistic(affine([b_i, U_i, both])), tanh(affine([b_u, U_u, both]))
                    f_1 = logistic(affine([b_f, F_1, h_1]))
                    f_2 = logistic(affine([b_f, F_2, h_2]))
                    c_v = esum([cmult(i, u), cmult(f_1, c[left]), cmult(f_2, c[right])])
                    h_v = cmult(logistic(affine([b_o, U_o, both])), tanh(c_v))
                h.append(h_v)
                c.append(c_v)
                labels.append(label)
            hidden += h
        yield classified(self.classifier, hidden, labels)


NETWORKS = {"tree_lstm": Network}
