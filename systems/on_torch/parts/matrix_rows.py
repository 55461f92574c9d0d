"""Where the matrices of an MV-RNN stand, and where the gradients that their parents give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.values.instances import Tree
from systems.on_torch.parts.rows import to_device
from systems.on_torch.parts.tree_rows import TreeRows, joined_trees, ranked_trees


@dataclass(frozen=True, slots=True)
class MatrixRows(TreeRows):
    """Rows as of TreeRows, roots that are no leaves in one last batch: nobody reads their matrices.

    sides (2, n_internal): rows of the left and of the right child of every internal row, where
    each is a place, counted from the first left one. leaf_places, leaf_words (m,): of leaves that
    have a parent. inner_places (k,): of internal rows that have one; those are the first.
    """

    sides: Tensor
    leaf_places: Tensor
    leaf_words: Tensor
    inner_places: Tensor


def matrix_rows(trees: Sequence[Tree], device: torch.device) -> MatrixRows:
    """Plan a mini-batch; all indices reach the device in one copy."""
    joined = joined_trees(trees)
    rank = joined.height
    roots = np.cumsum(joined.sizes) - 1
    rank[roots[rank[roots] > 0]] = rank.max()
    ranked = ranked_trees(joined, rank)
    n_leaves, n_below = ranked.sizes[0], len(ranked.children)
    row, side = np.divmod(ranked.places, 2)
    places = np.where(ranked.places < n_below, side * (n_below // 2) + row, n_below)
    have_parent = np.flatnonzero(places[:n_leaves] < n_below)
    leaf_places, leaf_words = places[have_parent], ranked.words[have_parent]
    inner_places = places[n_leaves:]
    found = to_device(
        device,
        ranked.words,
        ranked.labels,
        ranked.children,
        ranked.places,
        ranked.children.reshape(-1, 2).T.ravel(),
        leaf_places,
        leaf_words,
        inner_places[inner_places < n_below],
    )
    words, labels, children, parents, sides, *others = found
    own = words, labels, ranked.order, children, parents, ranked.sizes
    return MatrixRows(*own, sides.view(2, n_below // 2), *others)
