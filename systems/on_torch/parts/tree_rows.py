"""Rows of all vertices of a mini-batch of binary trees, batch after batch, made with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.models.parts.trees import Kinds
from harness.values.instances import Tree
from systems.on_torch.parts.rows import inverse, to_device
from systems.on_torch.parts.tree_levels import Ids, heights_of


class JoinedTrees(NamedTuple):
    """The vertices of all trees (n,), counted in canonical order.

    left, right: children, of leaves any negative or other number. sizes (k,): vertices of a tree.
    kinds (n,): of internal vertices, from 0; None where all are of one.
    """

    words: Ids
    labels: Ids
    left: Ids
    right: Ids
    height: Ids
    sizes: Ids
    kinds: Ids | None


def joined_trees(trees: Sequence[Tree], kinds: Kinds | None = None) -> JoinedTrees:
    """Join K trees; kinds: see harness.models.parts.trees."""
    table = np.concatenate([tree.table for tree in trees], axis=1)
    sizes = np.array([tree.n_vertices for tree in trees])
    of_kinds = None if kinds is None else kinds(table, sizes).astype(np.int64)
    words, labels, left, right = table
    internal = np.flatnonzero(left >= 0)
    offsets = np.repeat(np.cumsum(sizes) - sizes, sizes)
    left, right = left + offsets, right + offsets
    height = heights_of(len(left), internal, left[internal], right[internal])
    return JoinedTrees(words, labels, left, right, height, sizes, of_kinds)


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Vertices of equal height and type are a batch; the leaves are the first.

    words (n_leaves,): of the leaves. labels (n,): of all rows. order (n,): of every row its vertex,
    counted in canonical order. children (2 n_internal,): rows of both children of every internal
    row. places (n,): of every row its place in `children`; of roots the one behind its end.
    sizes: rows of every batch.
    """

    words: Tensor
    labels: Tensor
    order: Ids
    children: Tensor
    places: Tensor
    sizes: tuple[int, ...]


def tree_rows(trees: Sequence[Tree], device: torch.device, kinds: Kinds | None = None) -> TreeRows:
    """Plan a mini-batch; all indices reach the device in one copy.

    kinds: where internal vertices are of two types, see harness.models.parts.trees.
    """
    joined = joined_trees(trees, kinds)
    rank = joined.height
    if joined.kinds is not None:
        rank = np.where(rank > 0, 2 * rank + joined.kinds, 0)
    ranked = ranked_trees(joined, rank)
    found = to_device(device, ranked.words, ranked.labels, ranked.children, ranked.places)
    return TreeRows(found[0], found[1], ranked.order, found[2], found[3], ranked.sizes)


class RankedTrees(NamedTuple):
    """See TreeRows."""

    words: Ids
    labels: Ids
    order: Ids
    children: Ids
    places: Ids
    sizes: tuple[int, ...]


def ranked_trees(joined: JoinedTrees, rank: Ids) -> RankedTrees:
    """Batch vertices of equal rank; rank (n,): 0 of leaves, of parents above their children's."""
    order = np.argsort(rank, kind="stable")
    sizes = tuple(n for n in np.bincount(rank).tolist() if n)
    inner = order[sizes[0] :]
    below = np.stack([joined.left[inner], joined.right[inner]], axis=1).ravel()
    children = inverse(order)[below]
    places = np.full(len(order), len(children))
    places[children] = np.arange(len(children))
    words, labels = joined.words[order[: sizes[0]]], joined.labels[order]
    return RankedTrees(words, labels, order, children, places, sizes)
