"""Where the matrices of an MV-RNN stand: each where its parent will read it."""

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

    The matrices of all left children come first, then those of all right children, by their
    parents' rows: 2 n_internal places in all.
    place_words (2 n_internal,): of every place the word of its leaf, else any. leaf_places,
    leaf_words (m,): of leaves that have a parent. inner_places (k,): of internal rows that have
    one; those are the first.
    """

    place_words: Tensor
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
    place_words = np.zeros(n_below, np.int64)
    place_words[leaf_places] = leaf_words
    inner_places = places[n_leaves:]
    found = to_device(
        device,
        ranked.words,
        ranked.labels,
        ranked.children,
        ranked.places,
        place_words,
        leaf_places,
        leaf_words,
        inner_places[inner_places < n_below],
    )
    return MatrixRows(
        found[0], found[1], ranked.order, found[2], found[3], ranked.sizes, *found[4:]
    )
