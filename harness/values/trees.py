"""Binary trees: frozen values that check themselves when built."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from harness.errors import DataError
from harness.values.arrays import IntArray, int_array

TREE_ROWS = ("words", "labels", "left", "right")


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """One binary tree, vertices in post-order (children before parents, the root last).

    words (n,): word id of a leaf, -1 at an internal vertex.
    labels (n,): class of every vertex.
    left, right (n,): children of an internal vertex, -1 at a leaf.
    table (4, n): the four arrays above as rows of one block, so that trees are joined in one copy.

    Raises DataError when the arrays do not describe one binary tree.
    """

    words: IntArray
    labels: IntArray
    left: IntArray
    right: IntArray
    table: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = [np.asarray(getattr(self, name)) for name in TREE_ROWS]
        lengths = {len(row) for row in rows}
        if len(lengths) != 1:
            raise DataError(f"a tree's arrays have lengths {sorted(lengths)}; they must be equal")
        object.__setattr__(self, "table", int_array(np.stack(rows)))
        for name, row in zip(TREE_ROWS, self.table, strict=True):
            object.__setattr__(self, name, row)
        self._check()

    def _check(self) -> None:
        n = self.n_vertices
        if n == 0:
            raise DataError("a tree has no vertices; it needs at least one leaf")
        leaf = self.left < 0
        if not np.array_equal(leaf, self.right < 0):
            raise DataError("a vertex has one child; every vertex has none or two")
        if not np.array_equal(leaf, self.words >= 0):
            raise DataError("a tree has a leaf without a word or an internal vertex with one")
        children = np.concatenate([self.left[~leaf], self.right[~leaf]])
        parents = np.concatenate([np.flatnonzero(~leaf)] * 2)
        if np.any(children >= parents):
            raise DataError("a child comes after its parent; vertices must be in post-order")
        if not np.array_equal(np.sort(children), np.arange(n - 1)):
            raise DataError("a tree is not connected: each vertex but the root needs one parent")

    @property
    def n_vertices(self) -> int:
        """Leaves and internal vertices together."""
        return len(self.words)

    @property
    def n_leaves(self) -> int:
        """Vertices without children."""
        return (self.n_vertices + 1) // 2

    @property
    def height(self) -> int:
        """Edges on the longest path from the root to a leaf."""
        heights = np.zeros(self.n_vertices, dtype=np.int32)
        for vertex in np.flatnonzero(self.left >= 0):
            heights[vertex] = 1 + max(heights[self.left[vertex]], heights[self.right[vertex]])
        return int(heights[-1])
