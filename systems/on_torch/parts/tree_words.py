"""A mini-batch of trees as a plain PyTorch training loop holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from harness.values.instances import Tree

OfLeaf = TypeVar("OfLeaf")


class WordTree(NamedTuple):
    """One tree; labels are a tensor, for a loss reads them all at once."""

    labels: Tensor
    children: list[tuple[int, int]]  # (-1, -1): a leaf

    def by_leaf(self, states: Iterator[OfLeaf]) -> dict[int, OfLeaf]:
        """Give every leaf, in vertex order, its own of the states."""
        return {v: next(states) for v, (left, _) in enumerate(self.children) if left < 0}


class WordTrees(NamedTuple):
    """K trees and the words of all their leaves, in vertex order.

    One embedding look-up serves the mini-batch: a sparse gradient for every tree, let alone for
    every word, would be added to the others by copying them.
    """

    words: Tensor
    trees: list[WordTree]


def word_trees(trees: Sequence[Tree], device: torch.device) -> WordTrees:
    """Make tensors of words and labels, and Python numbers of the structure."""
    words = np.concatenate([tree.words[tree.words >= 0] for tree in trees], dtype=np.int64)
    return WordTrees(
        torch.from_numpy(words).to(device),
        [
            WordTree(
                torch.from_numpy(tree.labels.astype(np.int64)).to(device),
                list(zip(tree.left.tolist(), tree.right.tolist(), strict=True)),
            )
            for tree in trees
        ],
    )
