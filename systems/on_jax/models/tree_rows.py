"""Schedules of trees in chunks of vertices that are ready together, planned on the host.

Levels of equal height have arbitrary widths; padding them to four widths adds 40 % to the inner
vertices of 64 SST trees. A list schedule adds only 7 %: a chunk takes the deepest ready vertices
until it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
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


def assign_tree_rows(trees: Sequence[Tree], widths: tuple[int, ...], multiple: int) -> TreeSchedule:
    """Assign rows to the vertices of a mini-batch: leaves first, then inner ones chunk by chunk.

    A chunk has the smallest of `widths` that holds its vertices. Widths never increase, because a
    chunk makes at most as many vertices ready as it has.

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
    """
    lengths = np.array([tree.n_vertices for tree in trees], np.int32)
    table = np.concatenate([tree.table for tree in trees], axis=1)
    n = table.shape[1]
    parents, own = np.empty(n, np.int32), np.empty(n, np.int32)
    counts = np.zeros(len(widths), np.int32)
    n_leaves, n_rows = _schedule(table, lengths, np.array(widths, np.int32), parents, own, counts)
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
    """Ready inner vertices: a linked list for every depth.

    Attributes:
        heads: (n_depths,), first vertex of each list; -1 for an empty list.
        following: (n,), next vertex of the list; -1 at its end.
        deepest: (1,), upper bound of the depths.
        total: (1,), number of vertices.
    """

    heads: IntArray
    following: IntArray
    deepest: IntArray
    total: IntArray


@helper
def _push(ready: _Ready, depth: int, v: int) -> None:
    ready.following[v], ready.heads[depth] = ready.heads[depth], v
    ready.deepest[0] = max(ready.deepest[0], depth)
    ready.total[0] += 1


@helper
def _pop_deepest(ready: _Ready) -> int:
    while ready.heads[ready.deepest[0]] < 0:
        ready.deepest[0] -= 1
    v: int = ready.heads[ready.deepest[0]]
    ready.heads[ready.deepest[0]] = ready.following[v]
    ready.total[0] -= 1
    return v


@compiled
def _schedule(
    table: IntTable,
    lengths: IntArray,
    widths: IntArray,
    parents: IntArray,
    own: IntArray,
    counts: IntArray,
) -> tuple[int, int]:
    """Schedule chunk by chunk.

    Args:
        table: words, labels, left and right children; children are renumbered across trees.
        lengths: number of vertices of each tree.
        widths: rows of chunks, the widest first.
        parents: (n,), written; -1 for roots.
        own: (n,), written: row of each vertex among the leaves or among the inner vertices.
        counts: written: number of chunks of every width.

    Returns:
        Number of leaves, and number of inner rows.
    """
    n = table.shape[1]
    waits, depth = np.zeros(n, np.int32), np.zeros(n, np.int32)  # waits: number of inner children
    _join(table, lengths, parents, waits, depth)
    ready = _Ready(
        np.full(depth.max() + 1, -1, np.int32),
        np.empty(n, np.int32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
    )
    n_leaves = 0
    for v in range(n):
        if table[2, v] < 0:
            own[v] = n_leaves
            n_leaves += 1
        elif waits[v] == 0:
            _push(ready, depth[v], v)
    chunk, row, index = np.empty(widths[0], np.int32), 0, 0
    while ready.total[0] > 0:
        while index + 1 < len(widths) and widths[index + 1] >= ready.total[0]:
            index += 1
        size = min(ready.total[0], widths[index])
        for offset in range(size):
            chunk[offset] = _pop_deepest(ready)
            own[chunk[offset]] = row + offset
        for v in chunk[:size]:
            above = parents[v]
            if above >= 0:
                waits[above] -= 1
                if waits[above] == 0:
                    _push(ready, depth[above], above)
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
