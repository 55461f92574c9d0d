"""Binary Tree-LSTM in PyTorch, as written first (Recursive) and as batched by hand (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from harness.values.instances import Tree
from systems.on_torch.models.tree_lstm_steps import TreeLSTMSteps
from systems.on_torch.models.tree_rows import TreeRows, tree_rows
from systems.on_torch.models.tree_words import WordTree, WordTrees, word_trees
from systems.on_torch.parts.tree_parameters import TreeLSTMParameters

Array = NDArray[np.floating[Any]]


class Recursive(TreeLSTMParameters):
    """One tree at a time, a recursive function over its vertices."""

    def prepare(self, trees: Sequence[Tree]) -> WordTrees:
        """Tensors on the device and Python numbers."""
        return word_trees(trees, self.embedding.weight.device)

    def forward(self, batch: WordTrees) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all vertices."""
        embedded = iter(torch.split(self.embedding(batch.words), 1))
        found = [self.tree(tree, tree.by_leaf(embedded)) for tree in batch.trees]
        losses, logits = zip(*found, strict=True)
        return torch.stack(losses).sum(), torch.cat(logits)

    def tree(self, tree: WordTree, words: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Loss and logits of one tree."""
        hidden: dict[int, Tensor] = {}
        self.visit(tree, words, hidden, len(tree.children) - 1)
        logits = self.classifier(torch.cat([hidden[v] for v in range(len(hidden))]))
        return functional.cross_entropy(logits, tree.labels, reduction="sum"), logits

    def visit(
        self, tree: WordTree, words: dict[int, Tensor], hidden: dict[int, Tensor], v: int
    ) -> tuple[Tensor, Tensor]:
        """State of the subtree below a vertex; notes the h of all its vertices."""
        # Not a function inside a function: that would refer to itself, and so keep a tree's
        # tensors until the garbage collector, which is paused while time is taken, finds it.
        left, right = tree.children[v]
        if left < 0:
            h, c = self.leaf_cell(words[v])
        else:
            first = self.visit(tree, words, hidden, left)
            h, c = self.internal_cell(*first, *self.visit(tree, words, hidden, right))
        hidden[v] = h
        return h, c

    def leaf_cell(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """State of a leaf."""
        i, o, u = self.leaf_gates(x).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def internal_cell(
        self, h_1: Tensor, c_1: Tensor, h_2: Tensor, c_2: Tensor
    ) -> tuple[Tensor, Tensor]:
        """State of an internal vertex."""
        i, o, u = self.gates(torch.cat([h_1, h_2], dim=1)).chunk(3, dim=1)
        f_1 = torch.sigmoid(self.forget_1(h_1))
        f_2 = torch.sigmoid(self.forget_2(h_2) + self.forget_1.bias)
        c = torch.sigmoid(i) * torch.tanh(u) + f_1 * c_1 + f_2 * c_2
        return torch.sigmoid(o) * torch.tanh(c), c


class Levels(TreeLSTMParameters):
    """All vertices of a level at once, the derivative by hand; the classifier once, over all.

    Measured on one core of a busy machine, SST, batch 64, hidden 64 and 256, times as fast as
    autograd over levels with nn.Linear (4300 and 750 trees/s in training), medians in turns:
    training 1.27 and 1.61, inference 1.07 and 1.36. Sketches in other minutes: autograd with
    products by the faster library 0.90 to 0.94 and 1.31 to 1.41, inference 0.88 and 1.29 to 1.41;
    h and c in one tensor and two products a level 1.32 to 1.36 and 1.68 to 1.76, inference 0.97 to
    1.08 and 0.73 to 1.17; a sketch of this one 1.40 and 1.76, 1.09 and 1.44.
    """

    def prepare(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """The trees as they are; planning is timed."""
        return trees

    def plan(self, trees: Sequence[Tree], device: torch.device) -> TreeRows:
        """Rows of all vertices."""
        return tree_rows(trees, device)

    def forward(self, plan: TreeRows) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all vertices in the plan's order."""
        h = TreeLSTMSteps.apply(  # type: ignore[no-untyped-call]
            self.embedding(plan.words),
            self.leaf_gates.weight,
            self.leaf_gates.bias,
            self.gates.weight,
            self.gates.bias,
            self.forget_1.weight,
            self.forget_2.weight,
            self.forget_1.bias,
            plan,
        )
        logits = self.classifier(h)
        return functional.cross_entropy(logits, plan.labels, reduction="sum"), logits

    def in_canonical_order(self, plan: TreeRows, outputs: Array) -> Array:
        """Rows of the outputs in the order of MiniBatch.outputs."""
        canonical = np.empty_like(outputs)
        canonical[plan.order] = outputs
        return canonical
