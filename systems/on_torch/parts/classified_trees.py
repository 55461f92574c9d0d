"""Binary trees with a classifier at every vertex: one tree after the other, or all side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.values.instances import Tree
from systems.on_torch.parts.rows import on_device
from systems.on_torch.parts.tree_words import WordTree, WordTrees, word_trees
from systems.plans.trees import tree_rows

Array = NDArray[np.floating[Any]]
State = tuple[Tensor, ...]  # of a vertex; the classifier reads the first part (1, h)


class RecursiveTrees(nn.Module, ABC):
    """One tree at a time, a recursive function over its vertices, as written first."""

    embedding: nn.Embedding
    classifier: nn.Linear

    @abstractmethod
    def leaf(self, *vectors: Tensor) -> State:
        """State of a leaf from what its word looks up."""

    @abstractmethod
    def internal(self, left: State, right: State) -> State:
        """State of an internal vertex."""

    def vectors(self, words: Tensor) -> Iterator[State]:
        """What each of the words (n,) looks up, (1, n_inputs) each."""
        return zip(torch.split(self.embedding(words), 1), strict=True)

    def prepare(self, trees: Sequence[Tree]) -> WordTrees:
        """Tensors on the device and Python numbers."""
        return word_trees(trees, self.classifier.weight.device)

    def forward(self, batch: WordTrees) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all vertices."""
        vectors = self.vectors(batch.words)
        found = [self.tree(tree, tree.by_leaf(vectors)) for tree in batch.trees]
        losses, logits = zip(*found, strict=True)
        return torch.stack(losses).sum(), torch.cat(logits)

    def tree(self, tree: WordTree, words: dict[int, State]) -> tuple[Tensor, Tensor]:
        """Loss and logits of one tree."""
        hidden: dict[int, Tensor] = {}
        self.visit(tree, words, hidden, len(tree.children) - 1)
        logits = self.classifier(torch.cat([hidden[v] for v in range(len(hidden))]))
        return functional.cross_entropy(logits, tree.labels, reduction="sum"), logits

    def visit(
        self, tree: WordTree, words: dict[int, State], hidden: dict[int, Tensor], v: int
    ) -> State:
        """State of the subtree below a vertex; notes what the classifier reads of each in it."""
        # Not a function inside a function: that would refer to itself, and so keep a tree's
        # tensors until the garbage collector, which is paused while time is taken, finds it.
        left, right = tree.children[v]
        if left < 0:
            state = self.leaf(*words[v])
        else:
            first = self.visit(tree, words, hidden, left)
            state = self.internal(first, self.visit(tree, words, hidden, right))
        hidden[v] = state[0]
        return state


class TreesByLevel(nn.Module, ABC):
    """All vertices of a level at once; the classifier once, over all."""

    classifier: nn.Linear

    @abstractmethod
    def states(self, plan: Any) -> Tensor:
        """What the classifier reads of all vertices (n, h), in the plan's order."""

    def prepare(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """The trees as they are; planning is timed."""
        return trees

    def plan(self, trees: Sequence[Tree], device: torch.device) -> Any:
        """Rows of all vertices, TreeRows unless a model has a plan of its own."""
        return on_device(tree_rows(trees), device)

    def forward(self, plan: Any) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all vertices in the plan's order."""
        logits = self.classifier(self.states(plan))
        return functional.cross_entropy(logits, plan.labels, reduction="sum"), logits

    def in_canonical_order(self, plan: Any, outputs: Array) -> Array:
        """Rows of the outputs in the order of MiniBatch.outputs."""
        canonical = np.empty_like(outputs)
        canonical[plan.order] = outputs
        return canonical
