"""Rows of all vertices of a mini-batch of binary trees, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.models.parts.trees import Kinds
from dynbatch.harness.values.instances import Tree

Ids = NDArray[np.int64]


class JoinedTrees(NamedTuple):
    """Vertices of all trees (n,), in canonical order.

    Attributes:
        left: left children; any number for leaves.
        right: right children; any number for leaves.
        sizes: (k,), numbers of vertices of the trees.
        kinds: (n,), types of internal vertices, from 0; None if all have the same type.
    """

    words: Ids
    labels: Ids
    left: Ids
    right: Ids
    height: Ids
    sizes: Ids
    kinds: Ids | None


def join_trees(trees: Sequence[Tree], kinds: Kinds | None = None) -> JoinedTrees:
    """Concatenate trees.

    For kinds, see dynbatch.harness.models.parts.trees.
    """
    table = np.concatenate([tree.table for tree in trees], axis=1)
    sizes = np.array([tree.n_vertices for tree in trees])
    of_kinds = None if kinds is None else kinds(table, sizes).astype(np.int64)
    words, labels, left, right = table
    internal = np.flatnonzero(left >= 0)
    offsets = np.repeat(np.cumsum(sizes) - sizes, sizes)
    left, right = left + offsets, right + offsets
    height = compute_heights(len(left), internal, left[internal], right[internal])
    return JoinedTrees(words, labels, left, right, height, sizes, of_kinds)


def compute_heights(n: int, internal: Ids, left: Ids, right: Ids) -> Ids:
    """Return the heights of all vertices, with one iteration per level."""
    height = np.zeros(n, np.int64)
    while True:
        updated = np.maximum(height[left], height[right]) + 1
        if np.array_equal(updated, height[internal]):
            return height
        height[internal] = updated


class TreeRows(NamedTuple):
    """Rows of vertices. Vertices of equal height and type form a batch; the leaves are the first.

    Attributes:
        words: (n_leaves,), words of the leaves.
        labels: (n,), labels of all rows.
        order: (n,), vertex of every row, in canonical order.
        children: (2 n_internal,), rows of both children of every internal row.
        places: (n,), index of every row in `children`; len(children) for roots.
        sizes: number of rows of every batch.
    """

    words: Ids
    labels: Ids
    order: Ids
    children: Ids
    places: Ids
    sizes: tuple[int, ...]


def plan_tree_rows(trees: Sequence[Tree], kinds: Kinds | None = None) -> TreeRows:
    """Plan a mini-batch.

    Args:
        kinds: types of internal vertices if there are two, see dynbatch.harness.models.parts.trees.
    """
    joined = join_trees(trees, kinds)
    return batch_by_rank(joined, rank_vertices(joined))


def rank_vertices(joined: JoinedTrees) -> Ids:
    """Return a rank per height and type: 0 for leaves, and more than those of the children."""
    if joined.kinds is None:
        return joined.height
    ranks: Ids = np.where(joined.height > 0, 2 * joined.height + joined.kinds, 0)
    return ranks


def batch_by_rank(joined: JoinedTrees, rank: Ids) -> TreeRows:
    """Batch vertices of equal rank.

    Args:
        joined: vertices of all trees.
        rank: (n,), 0 for leaves; a parent's is larger than those of its children.
    """
    order = np.argsort(rank, kind="stable")
    sizes = tuple(n for n in np.bincount(rank).tolist() if n)
    inner = order[sizes[0] :]
    below = np.stack([joined.left[inner], joined.right[inner]], axis=1).ravel()
    children = invert_permutation(order)[below]
    places = np.full(len(order), len(children))
    places[children] = np.arange(len(children))
    words, labels = joined.words[order[: sizes[0]]], joined.labels[order]
    return TreeRows(words, labels, order, children, places, sizes)


class MatrixRows(NamedTuple):
    """Rows as in TreeRows, and indices of the matrices of an MV-RNN.

    Roots that are not leaves form one last batch, because their matrices are not read.

    Attributes:
        sides: (2, n_internal), rows of the left and of the right child of every internal row. An
            index into it, counted from the first left child, is a place.
        leaf_places: (m,), places of leaves that have a parent.
        leaf_words: (m,), words of leaves that have a parent.
        inner_places: (k,), places of internal rows that have a parent; these rows are the first.
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


def plan_matrix_rows(trees: Sequence[Tree]) -> MatrixRows:
    """Plan a mini-batch, and the indices of the matrices' gradients that parents compute."""
    joined = join_trees(trees)
    rank = joined.height
    roots = np.cumsum(joined.sizes) - 1
    rank[roots[rank[roots] > 0]] = rank.max()
    rows = batch_by_rank(joined, rank)
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


def invert_permutation(permutation: Ids) -> Ids:
    where = np.empty_like(permutation)
    where[permutation] = np.arange(len(permutation))
    return where
