"""Tree-FC in DyNet, both variants, written for one tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dynet as dy

from harness.instances import Tree
from harness.models.base import Model
from systems.dynet_runtime import ParameterStore

Vertex = tuple[int, int, int]  # word (-1: internal), left child, right child


class Network:
    """Equations of harness.models.tree_fc; the output and loss are the roots'."""

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.has_table = "embedding" in model.parameters
        self.embedding = store.table("embedding") if self.has_table else None
        self.weight = store.matrices("W")[0]
        self.bias = store.vectors("b")[0]
        self.hidden_size = model.sizes.hidden_size

    def read(self, tree: Tree) -> list[Vertex]:
        """A tree as a DyNet program holds it: Python numbers, children before parents."""
        columns = (tree.words, tree.left, tree.right)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def build(self, trees: Sequence[list[Vertex]]) -> tuple[Any, list[Any]]:
        """Expressions of the summed loss and of every root's state."""
        affine, rectify, concatenate = dy.affine_transform, dy.rectify, dy.concatenate
        lookup, table, has_table = dy.lookup, self.embedding, self.has_table
        W, b = self.weight.expr(True), self.bias.expr(True)
        zero = None if has_table else dy.zeros(2 * self.hidden_size)
        roots: list[Any] = []
        for tree in trees:
            h: list[Any] = []
            for word, left, right in tree:
                if word < 0:
                    h.append(rectify(affine([b, W, concatenate([h[left], h[right]])])))
                elif has_table:
                    h.append(lookup(table, word))
                else:
                    h.append(rectify(affine([b, W, zero])))
            roots.append(h[-1])
        return dy.esum([dy.squared_norm(root) for root in roots]) * 0.5, roots
