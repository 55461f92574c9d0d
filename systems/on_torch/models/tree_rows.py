"""Rows of all vertices of a mini-batch of binary trees, level after level, made with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.values.instances import Tree
from systems.on_torch.models.tree_levels import Ids, heights_of
from systems.on_torch.parts.rows import inverse, to_device


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Vertices of equal height are a level; the leaves are the first.

    words (n_leaves,): of the leaves. labels (n,): of all rows. order (n,): of every row its vertex,
    counted in canonical order. children (2 n_internal,): rows of both children of every internal
    row. places (n,): of every row its place in `children`; of roots the one behind its end.
    sizes: rows of every level.
    """

    words: Tensor
    labels: Tensor
    order: Ids
    children: Tensor
    places: Tensor
    sizes: tuple[int, ...]


def tree_rows(trees: Sequence[Tree], device: torch.device) -> TreeRows:
    """Plan a mini-batch; all indices reach the device in one copy."""
    lengths = np.array([len(tree.words) for tree in trees])
    offsets = np.repeat(np.cumsum(lengths) - lengths, lengths)
    left = np.concatenate([tree.left for tree in trees])
    internal = np.flatnonzero(left >= 0)
    left = left + offsets
    right = np.concatenate([tree.right for tree in trees]) + offsets
    height = heights_of(len(left), internal, left[internal], right[internal])
    order = np.argsort(height, kind="stable")
    sizes = tuple(np.bincount(height).tolist())
    inner = order[sizes[0] :]
    children = inverse(order)[np.stack([left[inner], right[inner]], axis=1).ravel()]
    places = np.full(len(order), len(children))
    places[children] = np.arange(len(children))
    words = np.concatenate([tree.words for tree in trees])[order[: sizes[0]]]
    labels = np.concatenate([tree.labels for tree in trees])[order]
    found = to_device(device, words, labels, children, places)
    return TreeRows(found[0], found[1], order, found[2], found[3], sizes)
