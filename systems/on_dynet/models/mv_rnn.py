"""MV-RNN in DyNet, written for one tree; DyNet batches across trees and vertices."""

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
    """Equations of harness.models.mv_rnn, on the matrices M themselves, as the papers write them.

    DyNet tells products apart by the node of their left factor, so that M v of every vertex is a
    batch of its own (what ACRoBat's comparison calls its missed opportunity), unless the system's
    option is products=sizes. Everything else is batched: an affine transform of matrices adds its
    bias to every column.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.embedding = store.table("embedding")
        self.matrices = store.square_table("matrices")
        self.vector = [*store.vectors("b"), *store.matrices("W", 2, axis=0)]
        self.matrix = [*store.vectors("b_T"), *store.matrices("A_1"), *store.matrices("A_2")]
        self.classifier = store.matrices("W_out")[0]

    def read(self, tree: Tree) -> list[Vertex]:
        """A tree as a DyNet program holds it: Python numbers, children before parents."""
        columns = (tree.words, tree.left, tree.right, tree.labels)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def build(self, trees: Sequence[list[Vertex]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every vertex."""
        affine, tanh, lookup = dy.affine_transform, dy.tanh, dy.lookup
        vector_table, matrix_table = self.embedding, self.matrices
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        b, W_1, W_2 = (p.expr(True) for p in self.vector)
        b_M, A_1, A_2 = (p.expr(True) for p in self.matrix)
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
        yield classified(self.classifier, vectors, labels)


NETWORKS = {"mv_rnn": Network}
