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


@helper
def _find_first_ready(
    table: IntTable,
    waits: IntArray,
    depth: IntArray,
    own: IntArray,
    heads: IntArray,
    following: IntArray,
) -> tuple[int, int]:
    """Assign rows to the leaves, and list the inner vertices that have only leaves as children.

    Args:
        table: words, labels, left and right children of all vertices.
        waits: (n,), number of inner children.
        depth: (n,), depth of each vertex.
        own: (n,), written: row of each leaf.
        heads: written: first vertex of the list of each depth; -1 for an empty list.
        following: (n,), written: next vertex of the list; -1 at its end.

    Returns:
        Number of leaves, and number of listed vertices.
    """
    n_leaves, n_ready = 0, 0
    for v in range(table.shape[1]):
        if table[2, v] < 0:
            own[v] = n_leaves
            n_leaves += 1
        elif waits[v] == 0:
            following[v], heads[depth[v]] = heads[depth[v]], v
            n_ready += 1
    return n_leaves, n_ready


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
    waits, depth = np.zeros(n, np.int32), np.zeros(n, np.int32)
    _join(table, lengths, parents, waits, depth)
    heads, following = np.full(depth.max() + 1, -1, np.int32), np.empty(n, np.int32)
    n_leaves, n_ready = _find_first_ready(table, waits, depth, own, heads, following)
    deepest = len(heads) - 1
    chunk, row, kind = np.empty(widths[0], np.int32), 0, 0
    while n_ready > 0:
        size = min(n_ready, widths[0])
        while kind + 1 < len(widths) and widths[kind + 1] >= size:
            kind += 1
        for offset in range(size):
            while heads[deepest] < 0:
                deepest -= 1
            v = heads[deepest]
            heads[deepest] = following[v]
            own[v] = row + offset
            chunk[offset] = v
        n_ready -= size
        for v in chunk[:size]:
            above = parents[v]
            if above >= 0:
                waits[above] -= 1
                if waits[above] == 0:
                    following[above], heads[depth[above]] = heads[depth[above]], above
                    deepest = max(deepest, depth[above])
                    n_ready += 1
        counts[kind] += 1
        row += widths[kind]
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
