"""Shape statistics of a corpus of trees: the numbers that decide how much there is to batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.instances import Tree


@dataclass(frozen=True, slots=True)
class TreeShapes:
    """Summary of many trees; label_shares are fractions of all vertices, by label."""

    n_instances: int
    n_vertices: int
    n_leaves: int
    leaves_mean: float
    leaves_max: int
    height_mean: float
    height_max: int
    n_words_used: int
    label_shares: tuple[float, ...]


def tree_shapes(trees: Sequence[Tree], n_classes: int) -> TreeShapes:
    """Measure every tree; height counts edges from the root to the farthest leaf."""
    leaves = np.array([tree.n_leaves for tree in trees])
    heights = np.array([tree.height for tree in trees])
    words = np.concatenate([tree.words for tree in trees])
    labels = np.bincount(np.concatenate([tree.labels for tree in trees]), minlength=n_classes)
    return TreeShapes(
        n_instances=len(trees),
        n_vertices=len(words),
        n_leaves=int(leaves.sum()),
        leaves_mean=float(leaves.mean()),
        leaves_max=int(leaves.max()),
        height_mean=float(heights.mean()),
        height_max=int(heights.max()),
        n_words_used=len(np.unique(words[words >= 0])),
        label_shares=tuple((labels / labels.sum()).tolist()),
    )
