"""Schedules of trees in chunks of vertices that are ready together, planned on the host.

Levels of equal height have arbitrary widths; padding them to four widths adds 40 % to the inner
vertices of 64 SST trees. A list schedule adds only 7 %: a chunk takes the deepest ready vertices
until it is full. If inner vertices are of several kinds, a chunk holds one kind: the one with the
most ready vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.models.parts.trees import Kinds
from dynbatch.harness.values.arrays import IntArray, IntTable
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_jax.scan import pad_vector, round_up

UNIT = 8  # rows; a matmul of fewer rows is not faster


class TreeSizes(NamedTuple):
    """Sizes that a program is compiled for.

    Attributes:
        widths: rows of a chunk, the widest first; the number of chunks of each width is data.
        n_leaves: number of rows of leaves, rounded up.
        n_inner: number of rows of inner vertices, rounded up.
        n_trees: number of trees, rounded up.
    """

    widths: tuple[int, ...]
    n_leaves: int
    n_inner: int
    n_trees: int


class TreeSchedule(NamedTuple):
    """Sizes and index vectors (see `assign_tree_rows`), and the row of every vertex (n,)."""

    sizes: TreeSizes
    vectors: dict[str, NDArray[np.int32]]
    rows: IntArray


def assign_tree_rows(
    trees: Sequence[Tree], widths: tuple[int, ...], multiple: int, assign_kinds: Kinds | None = None
) -> TreeSchedule:
    """Assign rows to the vertices of a mini-batch: leaves first, then inner ones chunk by chunk.

    A chunk has the smallest of `widths` that holds its vertices, but widths never increase: if more
    vertices of a kind are ready than the width, they are several chunks. With one kind this cannot
    happen, because a chunk makes at most as many vertices ready as it has.

    The vectors are:

    - words (n_leaves,).
    - left, right (n_inner,): rows of the children.
    - places (n_leaves + n_inner,): index of the gradient that the parent writes. It is the
      parent's row among the inner ones, plus n_inner + UNIT for a right child, and n_inner for a
      root.
    - labels (n_leaves + n_inner,): -1 for padding.
    - roots (n_trees,): rows, -1 for padding.
    - firsts, counts (one per width): first inner row, and number of chunks, of every width.

    Args:
        trees: instances.
        widths: rows of chunks, the widest first.
        multiple: multiple to which numbers of rows are rounded up.
        assign_kinds: returns the kinds of vertices; None if there is one kind.
    """
    lengths = np.array([tree.n_vertices for tree in trees], np.int32)
    table = np.concatenate([tree.table for tree in trees], axis=1)
    n = table.shape[1]
    kinds = assign_kinds(table, lengths) if assign_kinds else np.zeros(n, np.int32)
    parents, own = np.empty(n, np.int32), np.empty(n, np.int32)
    counts = np.zeros(len(widths), np.int32)
    n_leaves, n_rows = _schedule(
        table, lengths, kinds, np.array(widths, np.int32), parents, own, counts
    )
    sizes = TreeSizes(
        widths,
        round_up(n_leaves, multiple),
        round_up(n_rows, multiple),
        round_up(len(trees), UNIT),
    )
    n_all = sizes.n_leaves + sizes.n_inner
    vectors = {
        "words": np.zeros(sizes.n_leaves, np.int32),
        "left": np.zeros(sizes.n_inner, np.int32),
        "right": np.zeros(sizes.n_inner, np.int32),
        "places": np.full(n_all, sizes.n_inner, np.int32),
        "labels": np.full(n_all, -1, np.int32),
    }
    rows = np.empty(n, np.int32)
    _fill(table, parents, own, sizes.n_leaves, sizes.n_inner + UNIT, rows, *vectors.values())
    of_width = counts * np.array(widths, np.int32)
    vectors["roots"] = pad_vector(rows[np.cumsum(lengths) - 1], sizes.n_trees, -1)
    vectors["firsts"] = np.cumsum(of_width) - of_width
    vectors["counts"] = counts
    return TreeSchedule(sizes, vectors, rows)


def choose_chunk_size(n_inner: int) -> int:
    """Return the maximum number of vertices per chunk for a number of inner vertices.

    Wide matmuls are faster, and narrow chunks need less padding. Sentences per second on one thread
    (Tree-LSTM, SST, hidden size 64): batches of 64 trees 13 640 with chunks of 64 and 11 357 with
    128; batches of 256 trees 12 221 and 14 072.
    """
    return 64 if n_inner < 2048 else 128 if n_inner < 8192 else 256


def halve_width(width: int, n: int) -> tuple[int, ...]:
    """Return a width, half of it and so on, at most n of them, and none less than UNIT."""
    widths = [width := round_up(width, UNIT)]
    while len(widths) < n and width > UNIT:
        widths.append(width := round_up(width // 2, UNIT))
    return tuple(widths)


@helper
def _join(
    table: IntTable, lengths: IntArray, parents: IntArray, waits: IntArray, depth: IntArray
) -> None:
    """Renumber vertices across trees; write parents, numbers of inner children, and depths."""
    parents[:] = -1
    start = 0
    for length in lengths:
        for v in range(start, start + length):
            if table[2, v] >= 0:
                for side in (2, 3):
                    table[side, v] += start
                    child = table[side, v]
                    parents[child] = v
                    waits[v] += table[2, child] >= 0
        for v in range(start + length - 2, start - 1, -1):
            depth[v] = depth[parents[v]] + 1
        start += length


class _Ready(NamedTuple):
    """Ready inner vertices: a linked list for every kind and depth.

    Attributes:
        heads: (n_kinds, n_depths), first vertex of each list; -1 for an empty list.
        following: (n,), next vertex of the list; -1 at its end.
        deepest: (n_kinds,), upper bounds of the depths.
        counts: (n_kinds,), numbers of vertices.
    """

    heads: IntTable
    following: IntArray
    deepest: IntArray
    counts: IntArray


@helper
def _push(ready: _Ready, kind: int, depth: int, v: int) -> None:
    ready.following[v], ready.heads[kind, depth] = ready.heads[kind, depth], v
    ready.deepest[kind] = max(ready.deepest[kind], depth)
    ready.counts[kind] += 1


@helper
def _pop_deepest(ready: _Ready, kind: int) -> int:
    while ready.heads[kind, ready.deepest[kind]] < 0:
        ready.deepest[kind] -= 1
    v: int = ready.heads[kind, ready.deepest[kind]]
    ready.heads[kind, ready.deepest[kind]] = ready.following[v]
    ready.counts[kind] -= 1
    return v


@helper
def _find_most_ready(ready: _Ready) -> int:
    """Return the kind with the most ready vertices."""
    most = 0
    for kind in range(1, len(ready.counts)):
        if ready.counts[kind] > ready.counts[most]:
            most = kind
    return most


@compiled
def _schedule(
    table: IntTable,
    lengths: IntArray,
    kinds: IntArray,
    widths: IntArray,
    parents: IntArray,
    own: IntArray,
    counts: IntArray,
) -> tuple[int, int]:
    """Schedule chunk by chunk.

    Args:
        table: words, labels, left and right children; children are renumbered across trees.
        lengths: number of vertices of each tree.
        kinds: (n,), kind of each inner vertex, from 0.
        widths: rows of chunks, the widest first.
        parents: (n,), written; -1 for roots.
        own: (n,), written: row of each vertex among the leaves or among the inner vertices.
        counts: written: number of chunks of every width.

    Returns:
        Number of leaves, and number of inner rows.
    """
    n, n_kinds = table.shape[1], kinds.max() + 1
    waits, depth = np.zeros(n, np.int32), np.zeros(n, np.int32)  # waits: number of inner children
    _join(table, lengths, parents, waits, depth)
    ready = _Ready(
        np.full((n_kinds, depth.max() + 1), -1, np.int32),
        np.empty(n, np.int32),
        np.zeros(n_kinds, np.int32),
        np.zeros(n_kinds, np.int32),
    )
    n_leaves = 0
    for v in range(n):
        if table[2, v] < 0:
            own[v] = n_leaves
            n_leaves += 1
        elif waits[v] == 0:
            _push(ready, kinds[v], depth[v], v)
    chunk, row, index = np.empty(widths[0], np.int32), 0, 0
    while ready.counts.max() > 0:
        kind = _find_most_ready(ready)
        while index + 1 < len(widths) and widths[index + 1] >= ready.counts[kind]:
            index += 1
        size = min(ready.counts[kind], widths[index])
        for offset in range(size):
            chunk[offset] = _pop_deepest(ready, kind)
            own[chunk[offset]] = row + offset
        for v in chunk[:size]:
            above = parents[v]
            if above >= 0:
                waits[above] -= 1
                if waits[above] == 0:
                    _push(ready, kinds[above], depth[above], above)
        counts[index] += 1
        row += widths[index]
    return n_leaves, row


@compiled
def _fill(
    table: IntTable,
    parents: IntArray,
    own: IntArray,
    n_leaves: int,
    side: int,
    rows: IntArray,
    words: IntArray,
    left: IntArray,
    right: IntArray,
    places: IntArray,
    labels: IntArray,
) -> None:
    """Write the index vectors of `assign_tree_rows`.

    Args:
        side: Offset added to right children's entries of `places`.
    """
    n = table.shape[1]
    for v in range(n):
        inner = table[2, v] >= 0
        rows[v] = own[v] + (n_leaves if inner else 0)
        labels[rows[v]] = table[1, v]
        if not inner:
            words[own[v]] = table[0, v]
        above = parents[v]
        if above >= 0:
            places[rows[v]] = own[above] + (side if table[3, above] == v else 0)
    for v in range(n):
        if table[2, v] >= 0:
            left[own[v]], right[own[v]] = rows[table[2, v]], rows[table[3, v]]
