"""Tree-FC in PyTorch, both variants, as written first (Recursive) and batched by hand (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.values.instances import Tree
from systems.on_torch.parts.products import linear_relu
from systems.on_torch.parts.tree_levels import TreeLevels, plan_levels
from systems.on_torch.parts.tree_parameters import TreeFCParameters
from systems.on_torch.parts.tree_words import WordTree, WordTrees, word_trees

Array = NDArray[np.floating[Any]]


class _TreeFC(TreeFCParameters):
    """What both have in common; without a table, leaves read zeros."""

    def words(self, words: Tensor) -> Tensor:
        """What leaves read: embeddings, or as many zeros as two children would have."""
        if self.embedding is None:
            return self.layer.weight.new_zeros(len(words), 2 * self.h)
        embedded: Tensor = self.embedding(words)
        return embedded

    def leaf(self, words: Tensor) -> Tensor:
        """States of leaves from what they read."""
        if self.embedding is not None:
            return words
        return self.cell(words)

    def cell(self, both: Tensor) -> Tensor:
        """States from those of both children (n, 2 h)."""
        state: Tensor = self.layer(both)
        return state.relu()

    def loss(self, roots: Tensor) -> Tensor:
        """Fold's l2_loss, summed."""
        return 0.5 * roots.square().sum()


class Recursive(_TreeFC):
    """One tree at a time, a recursive function over its vertices."""

    def prepare(self, trees: Sequence[Tree]) -> WordTrees:
        """Tensors on the device and Python numbers."""
        return word_trees(trees, self.layer.weight.device)

    def forward(self, batch: WordTrees) -> tuple[Tensor, Tensor]:
        """Summed loss, states of all roots."""
        words = iter(torch.split(self.words(batch.words), 1))
        roots = torch.cat(
            [self.visit(t, t.by_leaf(words), len(t.children) - 1) for t in batch.trees]
        )
        return self.loss(roots), roots

    def visit(self, tree: WordTree, words: dict[int, Tensor], v: int) -> Tensor:
        """State of a vertex."""
        left, right = tree.children[v]
        if left < 0:
            return self.leaf(words[v])
        children = [self.visit(tree, words, left), self.visit(tree, words, right)]
        return self.cell(torch.cat(children, dim=1))


class Levels(_TreeFC):
    """All vertices of a level in one layer.

    Measured on one core of a busy machine, 64 complete trees of 64 leaves, hidden 64 and 256, times
    as fast as the layer and relu of nn, medians in turns: variant fold, training 1.14 and 1.76,
    inference 1.23 and 1.86; cavs, training 1.02 and 1.56. A sketch with relu outside the function:
    fold, training 1.07 and 1.76, inference 1.12 and 1.91.
    """

    def cell(self, both: Tensor) -> Tensor:
        """The same with the faster products."""
        return linear_relu(both, self.layer.weight, self.layer.bias)

    def prepare(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """The trees as they are; planning is timed."""
        return trees

    def plan(self, trees: Sequence[Tree], device: torch.device) -> TreeLevels:
        """Plan with roots, which alone are read."""
        return plan_levels(trees, device)

    def forward(self, plan: TreeLevels) -> tuple[Tensor, Tensor]:
        """Summed loss, states of all roots."""
        states = self.leaf(self.words(plan.words))
        for level in plan.levels:
            children, kept = level.take(states)
            states = level.add(kept, self.cell(children.view(-1, 2 * self.h)))
        roots = states.index_select(0, plan.roots)
        return self.loss(roots), roots

    def in_canonical_order(self, plan: TreeLevels, outputs: Array) -> Array:
        """They are in it: roots were chosen instance by instance."""
        return outputs


EAGER = {"tree_fc": Recursive}
LEVELS = {"tree_fc": Levels}
