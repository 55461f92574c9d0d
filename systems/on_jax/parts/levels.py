"""Trees level after level, in chunks of a few widths: planned with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.values.instances import Tree
from systems.on_jax.parts.plan import Ids, padded, rounded_up

UNIT = 8  # rows: no product of fewer is faster


class LevelSizes(NamedTuple):
    """Sizes that a program is compiled for.

    widths: rows of a chunk, the widest first; how many chunks are of each is no size but data.
    n_leaves, n_inner: rows, rounded up. n_roots: trees, rounded up.
    """

    widths: tuple[int, ...]
    n_leaves: int
    n_inner: int
    n_roots: int


class Levels(NamedTuple):
    """Sizes and index vectors (see `levels`), and of every vertex its row (n,)."""

    sizes: LevelSizes
    vectors: dict[str, NDArray]
    rows: Ids


def levels(trees: Sequence[Tree], chunk: int, n_widths: int, multiple: int) -> Levels:
    """Give the vertices of a mini-batch rows: leaves first, then the inner ones by height.

    Levels never grow with height. One of more than `chunk` vertices is cut into chunks of that
    width, any other is one chunk, as wide as the narrowest of n_widths that holds it. So chunks of
    equal width follow each other. multiple: what numbers of rows are rounded up to.

    Vectors: words (n_leaves,); left, right (n_inner,): rows of the children; leaf_places (n_leaves,)
    and places (n_inner,): where the parent leaves the gradient, which is the parent's row among the
    inner ones, n_inner + UNIT further for a right child, and n_inner for a root; labels (n_leaves
    + n_inner,), -1 for padding; roots (n_roots,): rows, of padding -1; firsts, counts (n_widths,):
    of every width the first inner row, and the number of chunks.
    """
    table = np.concatenate([tree.table for tree in trees], axis=1)
    lengths = np.array([tree.n_vertices for tree in trees])
    ends = np.cumsum(lengths)
    words, labels = table[0], table[1]
    children = table[2:] + np.repeat(ends - lengths, lengths)
    height = _heights(table[2].tolist(), table[3].tolist(), lengths)
    order = np.argsort(height, kind="stable")
    counts = np.bincount(height)
    n_leaves, at_height = counts[0], counts[1:]
    widths = tuple(range(chunk, 0, -rounded_up(-(-chunk // n_widths), UNIT)))
    wide, firsts, n_chunks = _chunks(at_height, widths)
    sizes = LevelSizes(
        widths,
        rounded_up(n_leaves, multiple),
        rounded_up(int(wide.sum()), multiple),
        rounded_up(len(trees), UNIT),
    )
    rows = np.empty(len(height), np.int64)
    rows[order[:n_leaves]] = np.arange(n_leaves)
    inner = order[n_leaves:]
    shift = np.cumsum(wide) - wide - (np.cumsum(at_height) - at_height)
    own = np.arange(len(inner)) + np.repeat(shift, at_height)
    rows[inner] = own + sizes.n_leaves
    below = rows[children[:, inner]]
    places = np.full(sizes.n_leaves + sizes.n_inner, sizes.n_inner, np.int32)
    places[below[0]] = own
    places[below[1]] = own + sizes.n_inner + UNIT
    by_row = np.full(sizes.n_leaves + sizes.n_inner, -1, np.int32)
    by_row[rows] = labels
    vectors = {
        "words": padded(words[order[:n_leaves]], sizes.n_leaves, 0),
        "left": _at(own, below[0], sizes.n_inner),
        "right": _at(own, below[1], sizes.n_inner),
        "leaf_places": places[: sizes.n_leaves],
        "places": places[sizes.n_leaves :],
        "labels": by_row,
        "roots": padded(rows[ends - 1], sizes.n_roots, -1),
        "firsts": firsts,
        "counts": n_chunks,
    }
    return Levels(sizes, vectors, rows)


def _heights(left: list[int], right: list[int], lengths: Ids) -> NDArray[np.int16]:
    """Of all vertices; those of a tree are in post-order, their children counted in the tree."""
    heights: list[int] = []
    add, start = heights.append, 0
    for length in lengths.tolist():
        for a, b in zip(left[start : start + length], right[start : start + length], strict=True):
            if a < 0:
                add(0)
            else:
                x, y = heights[start + a], heights[start + b]
                add((x if x > y else y) + 1)
        start += length
    return np.array(heights, np.int16)


def _chunks(n: Ids, widths: tuple[int, ...]) -> tuple[Ids, Ids, Ids]:
    """Rows of every level; of every width the first row, and the number of chunks."""
    unit, chunk = widths[-1], widths[0]
    width = np.minimum(-(-n // unit) * unit, chunk)
    n_chunks = -(-n // width)
    counts = np.array([n_chunks[width == w].sum() for w in widths], np.int64)
    of_width = counts * np.array(widths)
    return n_chunks * width, np.cumsum(of_width) - of_width, counts


def _at(rows: Ids, values: Ids, n: int) -> NDArray[np.int32]:
    found = np.zeros(n, np.int32)
    found[rows] = values
    return found
