"""Tree-LSTM with two types of internal vertices in DyNet, which batches neither with the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy
import numpy as np

from harness.models.tree_lstm_2type import TreeLSTM2Type
from harness.values.arrays import IntArray
from harness.values.instances import Tree
from systems.on_dynet.classifier import classified
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Vertex = tuple[int, int, int, int]  # word (-1: internal), left, right, label


class Network:
    """systems.on_dynet.models.tree_lstm with the weights of internal vertices twice in each graph.

    DyNet knows operators, not types, and would batch both types' together: their weights are the
    same. It tells affine transforms apart by the nodes of their weights, which is how ED-Batch's
    release, with two sets of weights, keeps DyNet's batches apart as well. Here the second set is
    one node a weight on top of the first, once in a graph.
    """

    def __init__(self, model: TreeLSTM2Type, store: ParameterStore) -> None:
        self.kinds = model.kinds
        self.embedding = store.table("embedding")
        self.leaf = [*store.matrices("W", 3), *store.vectors("b_leaf", 3)]
        self.internal = [
            *store.matrices("U", 3), *store.vectors("b", 3),
            *store.matrices("F_1"), *store.matrices("F_2"), *store.vectors("b_f"),
        ]  # fmt: skip
        self.classifier = store.matrices("W_out")[0]

    def read(self, tree: Tree) -> tuple[list[Vertex], IntArray]:
        """A tree as a DyNet program holds it: Python numbers, children before parents.

        With it its table, of which types are drawn: work that belongs to building the graph.
        """
        columns = (tree.words, tree.left, tree.right, tree.labels)
        return list(zip(*(column.tolist() for column in columns), strict=True)), tree.table

    def build(self, trees: Sequence[tuple[list[Vertex], IntArray]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every vertex."""
        tables = [table for _, table in trees]
        sizes = np.array([table.shape[1] for table in tables])
        kinds = iter(self.kinds(np.concatenate(tables, axis=1), sizes).tolist())
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        lookup, concatenate, esum = dy.lookup, dy.concatenate, dy.esum
        table = self.embedding
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        W_i, W_o, W_u, bl_i, bl_o, bl_u = (p.expr(True) for p in self.leaf)
        first = [p.expr(True) for p in self.internal]
        second = [dy.scale_gradient(p, 1.0) for p in first]
        weights = first, second
        hidden: list[Any] = []
        labels: list[int] = []
        for tree, _ in trees:
            h: list[Any] = []
            c: list[Any] = []
            # The next tree goes on where this one leaves the kinds.
            for (word, left, right, label), kind in zip(tree, kinds, strict=False):
                if word >= 0:
                    x = lookup(table, word)
                    c_v = cmult(logistic(affine([bl_i, W_i, x])), tanh(affine([bl_u, W_u, x])))
                    h_v = cmult(logistic(affine([bl_o, W_o, x])), tanh(c_v))
                else:
                    U_i, U_o, U_u, b_i, b_o, b_u, F_1, F_2, b_f = weights[kind]
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


NETWORKS = {"tree_lstm_2type": Network}
