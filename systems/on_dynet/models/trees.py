"""Tree models in DyNet, written for one tree; DyNet batches across trees and vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import dynet as dy
import numpy as np

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.tree_lstm_2type import TreeLSTM2Type
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_dynet.layers import add_to_graph, classify_states
from dynbatch.systems.on_dynet.runtime import ParameterStore
from dynbatch.systems.on_dynet.segments import GraphSegment

Vertex = tuple[int, int, int, int]  # word (-1: internal), left child, right child, label
UnlabelledVertex = tuple[int, int, int]  # word (-1: internal), left child, right child


class Trees:
    """Trees as Python values."""

    def read(self, tree: Tree) -> Any:
        """Return words, children and labels as Python numbers, children before parents."""
        columns = (tree.words, tree.left, tree.right, tree.labels)
        return list(zip(*(column.tolist() for column in columns), strict=True))


class TreeLSTM(Trees):
    """Equations of dynbatch.harness.models.tree_lstm, with one affine transform per gate.

    The operators are those of DyNet's own benchmark, except that c is one sum of three and that the
    classifier is called once: the fastest of several forms.

    Attributes:
        zeros_at_leaves: add a separate zero constant at every leaf, as in the first version of
            ACRoBat's authors (Fegade et al., MLSys 2024, Table 8; their first patch creates the
            constant once). Here a leaf has no child states, and the constant changes no value.
    """

    zeros_at_leaves = False

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.embedding, self.width = store.add_table("embedding"), model.sizes.hidden_size
        self.leaf = [*store.add_matrices("W", 3), *store.add_vectors("b_leaf", 3)]
        self.internal = [*store.add_matrices("U", 3), *store.add_vectors("b", 3)]
        self.forget = [
            *store.add_matrices("F_1"),
            *store.add_matrices("F_2"),
            *store.add_vectors("b_f"),
        ]
        self.classifier = store.add_matrices("W_out")[0]

    def build(self, trees: Sequence[list[Vertex]]) -> Iterator[GraphSegment]:
        """Yield expressions of the summed loss and of the logits of every vertex."""
        # Local names and one expression per parameter and graph: attribute lookups and repeated
        # parameter nodes would be most of the overhead of Python.
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        lookup, concatenate, esum = dy.lookup, dy.concatenate, dy.esum
        table, zeros_at_leaves, width = self.embedding, self.zeros_at_leaves, self.width
        W_i, W_o, W_u, bl_i, bl_o, bl_u = add_to_graph(self.leaf)
        weights, trees, kinds = self.group_by_kind(
            add_to_graph([*self.internal, *self.forget]), trees
        )
        hidden: list[Any] = []
        labels: list[int] = []
        for tree in trees:
            h: list[Any] = []
            c: list[Any] = []
            # The trees share the iterator of kinds.
            for (word, left, right, label), kind in zip(tree, kinds, strict=False):
                if word >= 0:
                    x = lookup(table, word)
                    c_v = cmult(logistic(affine([bl_i, W_i, x])), tanh(affine([bl_u, W_u, x])))
                    if zeros_at_leaves:
                        c_v = c_v + dy.zeros(width)
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
        yield classify_states(self.classifier, hidden, labels)

    def group_by_kind(
        self, weights: Sequence[Any], trees: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any], Iterator[int]]:
        """Return weights of internal vertices by kind, trees, and the kinds of their vertices."""
        return (weights,), trees, repeat(0)


class TreeLSTMWithZeros(TreeLSTM):
    """TreeLSTM with a separate zero constant in every leaf's cell."""

    zeros_at_leaves = True


class TreeLSTM2TypeNetwork(TreeLSTM):
    """TreeLSTM with the weights of internal vertices twice in each graph.

    Both types have the same weights, and DyNet knows operators but not types, so it would batch
    both types together. It distinguishes affine transforms by the nodes of their weights.
    ED-Batch's release has two sets of weights, which separates DyNet's batches as well. Here the
    second set is one more node per weight, created once per graph.
    """

    def __init__(self, model: TreeLSTM2Type, store: ParameterStore) -> None:
        super().__init__(model, store)
        self.kinds = model.assign_kinds

    def read(self, tree: Tree) -> tuple[list[Vertex], IntArray]:
        """Return a tree as Python numbers, children before parents, and its table.

        Types are drawn from the table in `build`, because this work is part of graph construction.
        """
        return super().read(tree), tree.table

    def group_by_kind(
        self, weights: Sequence[Any], trees: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any], Iterator[int]]:
        """Return weights of both kinds, trees, and the kinds of their vertices."""
        tables = [table for _, table in trees]
        sizes = np.array([table.shape[1] for table in tables])
        kinds = self.kinds(np.concatenate(tables, axis=1), sizes).tolist()
        second = [dy.scale_gradient(p, 1.0) for p in weights]
        return (weights, second), [tree for tree, _ in trees], iter(kinds)


class TreeLSTMChildSum(Trees):
    """Equations of dynbatch.harness.models.tree_lstm_child_sum, with one affine transform per gate.

    The forget gates of both children have the same weights, so that DyNet batches them together.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.embedding = store.add_table("embedding")
        self.leaf = store.add_matrices("W", 3)
        self.internal = [*store.add_matrices("U", 3), *store.add_matrices("U_f")]
        self.biases = [*store.add_vectors("b", 3), *store.add_vectors("b_f")]
        self.classifier = store.add_matrices("W_out")[0]

    def build(self, trees: Sequence[list[Vertex]]) -> Iterator[GraphSegment]:
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        lookup, esum, table = dy.lookup, dy.esum, self.embedding
        W_i, W_o, W_u = add_to_graph(self.leaf)
        U_i, U_o, U_u, U_f = add_to_graph(self.internal)
        b_i, b_o, b_u, b_f = add_to_graph(self.biases)
        hidden: list[Any] = []
        labels: list[int] = []
        for tree in trees:
            h: list[Any] = []
            c: list[Any] = []
            for word, left, right, label in tree:
                if word >= 0:
                    x = lookup(table, word)
                    c_v = cmult(logistic(affine([b_i, W_i, x])), tanh(affine([b_u, W_u, x])))
                    o = logistic(affine([b_o, W_o, x]))
                else:
                    h_1, h_2 = h[left], h[right]
                    both = h_1 + h_2
                    i, u = logistic(affine([b_i, U_i, both])), tanh(affine([b_u, U_u, both]))
                    f_1 = logistic(affine([b_f, U_f, h_1]))
                    f_2 = logistic(affine([b_f, U_f, h_2]))
                    c_v = esum([cmult(i, u), cmult(f_1, c[left]), cmult(f_2, c[right])])
                    o = logistic(affine([b_o, U_o, both]))
                h.append(cmult(o, tanh(c_v)))
                c.append(c_v)
                labels.append(label)
            hidden += h
        yield classify_states(self.classifier, hidden, labels)


class TreeGRU(Trees):
    """Equations of dynbatch.harness.models.tree_gru, with one affine transform per gate.

    z h + (1 - z) c is written c + z (h - c), because DyNet has no batched kernel of 1 - z.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.embedding = store.add_table("embedding")
        self.leaf = [
            *store.add_matrices("W", 2), *store.add_matrices("W_c"),
            *store.add_vectors("b_leaf", 2), *store.add_vectors("b_leaf_c"),
        ]  # fmt: skip
        self.first = [*store.add_matrices("U_1", 2), *store.add_matrices("U_c1")]
        self.second = [*store.add_matrices("U_2", 2), *store.add_matrices("U_c2")]
        self.biases = [*store.add_vectors("b", 2), *store.add_vectors("b_c")]
        self.classifier = store.add_matrices("W_out")[0]

    def build(self, trees: Sequence[list[Vertex]]) -> Iterator[GraphSegment]:
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        lookup, esum, table = dy.lookup, dy.esum, self.embedding
        W_r, W_z, W_c, bl_r, bl_z, bl_c = add_to_graph(self.leaf)
        U_r1, U_z1, U_c1 = add_to_graph(self.first)
        U_r2, U_z2, U_c2 = add_to_graph(self.second)
        b_r, b_z, b_c = add_to_graph(self.biases)
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
        yield classify_states(self.classifier, hidden, labels)


class TreeFC:
    """Equations of dynbatch.harness.models.tree_fc; outputs and loss are those of the roots.

    One affine transform takes both children, which is faster than one of their concatenation.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.has_table = "embedding" in model.parameters
        self.embedding = store.add_table("embedding") if self.has_table else None
        self.weights = store.add_matrices("W", 2, axis=0)
        self.bias = store.add_vectors("b")
        self.hidden_size = model.sizes.hidden_size

    def read(self, tree: Tree) -> list[UnlabelledVertex]:
        """Return words and children as Python numbers, children before parents."""
        columns = (tree.words, tree.left, tree.right)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def build(self, trees: Sequence[list[UnlabelledVertex]]) -> Iterator[GraphSegment]:
        """Yield expressions of the summed loss and of every root's state."""
        affine, rectify = dy.affine_transform, dy.rectify
        lookup, table, has_table = dy.lookup, self.embedding, self.has_table
        W_1, W_2 = add_to_graph(self.weights)
        (b,) = add_to_graph(self.bias)
        zero = None if has_table else dy.zeros(self.hidden_size)
        roots: list[Any] = []
        for tree in trees:
            h: list[Any] = []
            for word, left, right in tree:
                if word < 0:
                    h.append(rectify(affine([b, W_1, h[left], W_2, h[right]])))
                elif has_table:
                    h.append(lookup(table, word))
                else:
                    h.append(rectify(affine([b, W_1, zero, W_2, zero])))
            roots.append(h[-1])
        yield GraphSegment(dy.esum([dy.squared_norm(root) for root in roots]) * 0.5, roots)


class MVRNN(Trees):
    """Equations of dynbatch.harness.models.mv_rnn on the matrices M themselves, as in the papers.

    DyNet distinguishes matmuls by the node of their left factor, so M v of every vertex is a batch
    of its own (ACRoBat's comparison calls this a missed opportunity), unless the system's option is
    products=sizes. Everything else is batched: an affine transform of matrices adds its bias to
    every column.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.embedding = store.add_table("embedding")
        self.matrices = store.add_square_table("matrices")
        self.vector = [*store.add_vectors("b"), *store.add_matrices("W", 2, axis=0)]
        self.matrix = [
            *store.add_vectors("b_T"),
            *store.add_matrices("A_1"),
            *store.add_matrices("A_2"),
        ]
        self.classifier = store.add_matrices("W_out")[0]

    def build(self, trees: Sequence[list[Vertex]]) -> Iterator[GraphSegment]:
        affine, tanh, lookup = dy.affine_transform, dy.tanh, dy.lookup
        vector_table, matrix_table = self.embedding, self.matrices
        b, W_1, W_2 = add_to_graph(self.vector)
        b_M, A_1, A_2 = add_to_graph(self.matrix)
        vectors: list[Any] = []
        labels: list[int] = []
        for tree in trees:
            v: list[Any] = []
            M: list[Any] = []
            for word, left, right, label in tree:
                if word >= 0:
                    v.append(lookup(vector_table, word))
                    M.append(lookup(matrix_table, word))
                else:
                    M_1, M_2 = M[left], M[right]
                    v.append(tanh(affine([b, W_1, M_1 * v[right], W_2, M_2 * v[left]])))
                    M.append(affine([b_M, A_1, M_1, A_2, M_2]))
                labels.append(label)
            vectors += v
        yield classify_states(self.classifier, vectors, labels)


NETWORKS = {
    "tree_lstm": TreeLSTM,
    "tree_lstm_2type": TreeLSTM2TypeNetwork,
    "tree_lstm_child_sum": TreeLSTMChildSum,
    "tree_gru": TreeGRU,
    "tree_fc": TreeFC,
    "mv_rnn": MVRNN,
}
CONSTANTS_EACH = {
    "tree_lstm": TreeLSTMWithZeros,
}
