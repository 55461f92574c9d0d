"""Rows of all vertices of a mini-batch of binary trees, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.models.parts.trees import Kinds
from harness.values.instances import Tree

Ids = NDArray[np.int64]


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


def heights_of(n: int, internal: Ids, left: Ids, right: Ids) -> Ids:
    """Heights of all vertices; one round for each level."""
    height = np.zeros(n, np.int64)
    while True:
        found = np.maximum(height[left], height[right]) + 1
        if np.array_equal(found, height[internal]):
            return height
        height[internal] = found


class TreeRows(NamedTuple):
    """Vertices of equal height and type are a batch; the leaves are the first.

    words (n_leaves,): of the leaves. labels (n,): of all rows. order (n,): of every row its vertex,
    counted in canonical order. children (2 n_internal,): rows of both children of every internal
    row. places (n,): of every row its place in `children`; of roots the one behind its end.
    sizes: rows of every batch.
    """

    words: Ids
    labels: Ids
    order: Ids
    children: Ids
    places: Ids
    sizes: tuple[int, ...]


def tree_rows(trees: Sequence[Tree], kinds: Kinds | None = None) -> TreeRows:
    """Plan a mini-batch.

    kinds: where internal vertices are of two types, see harness.models.parts.trees.
    """
    joined = joined_trees(trees, kinds)
    rank = joined.height
    if joined.kinds is not None:
        rank = np.where(rank > 0, 2 * rank + joined.kinds, 0)
    return ranked_rows(joined, rank)


def ranked_rows(joined: JoinedTrees, rank: Ids) -> TreeRows:
    """Batch vertices of equal rank; rank (n,): 0 of leaves, of parents above their children's."""
    order = np.argsort(rank, kind="stable")
    sizes = tuple(n for n in np.bincount(rank).tolist() if n)
    inner = order[sizes[0] :]
    below = np.stack([joined.left[inner], joined.right[inner]], axis=1).ravel()
    children = inverse(order)[below]
    places = np.full(len(order), len(children))
    places[children] = np.arange(len(children))
    words, labels = joined.words[order[: sizes[0]]], joined.labels[order]
    return TreeRows(words, labels, order, children, places, sizes)


class MatrixRows(NamedTuple):
    """Rows as TreeRows has them, and where the matrices of an MV-RNN stand.

    Roots that are no leaves are one last batch: nobody reads their matrices. sides (2, n_internal):
    rows of the left and of the right child of every internal row, where each is a place, counted
    from the first left one. leaf_places, leaf_words (m,): of leaves that have a parent.
    inner_places (k,): of internal rows that have one; those are the first.
    """

    words: Ids
    labels: Ids
    order: Ids
    children: Ids
    places: Ids
    sizes: tuple[int, ...]
    sides: Ids
    leaf_places: Ids
    leaf_words: Ids
    inner_places: Ids


def matrix_rows(trees: Sequence[Tree]) -> MatrixRows:
    """Plan a mini-batch, and where the gradients of matrices stand that their parents give."""
    joined = joined_trees(trees)
    rank = joined.height
    roots = np.cumsum(joined.sizes) - 1
    rank[roots[rank[roots] > 0]] = rank.max()
    rows = ranked_rows(joined, rank)
    n_leaves, n_below = rows.sizes[0], len(rows.children)
    row, side = np.divmod(rows.places, 2)
    places = np.where(rows.places < n_below, side * (n_below // 2) + row, n_below)
    have_parent = np.flatnonzero(places[:n_leaves] < n_below)
    inner_places = places[n_leaves:]
    return MatrixRows(
        *rows,
        sides=rows.children.reshape(-1, 2).T,
        leaf_places=places[have_parent],
        leaf_words=rows.words[have_parent],
        inner_places=inner_places[inner_places < n_below],
    )


def inverse(permutation: Ids) -> Ids:
    """Return where each number stands in a permutation of 0 to n - 1."""
    where = np.empty_like(permutation)
    where[permutation] = np.arange(len(permutation))
    return where
