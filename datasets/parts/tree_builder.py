"""Builder of trees from vertices in post-order, which can make trees of any arity binary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dynbatch.datasets.parts.reading import Vocabulary
from dynbatch.harness.contracts.corpus import MAX_CHILDREN
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.instances import NaryTree, Tree

NO_LABEL = -1
Parts = list[int | str]  # content of a vertex: words, and indices of vertices
Children = tuple[int, ...]  # of a vertex; (-1, -1) of a leaf
LEAF = (-1, -1)
Side = Literal["left", "right", "none", "auto"]  # see `binarize` of dynbatch.datasets.sst.load


@dataclass(slots=True)
class TreeBuilder:
    """Vertices of a tree that is being read, in post-order.

    Attributes:
        words: word of each leaf, -1 for an internal vertex.
    """

    vocabulary: Vocabulary
    words: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    children: list[Children] = field(default_factory=list)

    def build_binary(self) -> Tree:
        """Build the tree if all its vertices have two children or none."""
        left, right = np.array(self.children, dtype=np.int32).T
        return Tree(np.array(self.words), np.array(self.labels), left, right)

    def build_nary(self) -> NaryTree:
        below = [() if children == LEAF else children for children in self.children]
        starts = np.cumsum([0, *map(len, below)])
        children = as_int_array([child for group in below for child in group])
        return NaryTree(as_int_array(self.words), as_int_array(self.labels), starts, children)

    def add(self, parts: Parts, label: int) -> int:
        """Add a vertex and return its number."""
        word, left_right = _parse_vertex(parts)
        row = -1 if word is None else self.vocabulary.find_row(word)
        return self._append(row, left_right, label)

    def _append(self, word: int, children: Children, label: int) -> int:
        self.words.append(word)
        self.children.append(children)
        self.labels.append(label)
        return len(self.labels) - 1

    def add_any(self, parts: Parts, label: int, side: Side) -> int:
        """Add a vertex with any number of children, see the docstring of dynbatch.datasets.sst."""
        children = tuple(part for part in parts if isinstance(part, int))
        if side == "none" and children and len(children) == len(parts) and label != NO_LABEL:
            return self._append(-1, children, label)
        if children and len(children) == len(parts):
            pair = slice(0, 2) if side == "left" else slice(-2, None)
            while len(parts) > 2 and label != NO_LABEL:
                parts[pair] = [self.add(parts[pair], label)]
            if len(parts) == 1 and isinstance(child := parts[0], int):
                self.labels[child] = self.labels[child] if label == NO_LABEL else label
                return child
        if label == NO_LABEL:
            raise DataError("no label after '('")
        return self.add(parts, label)


def build_trees(
    builders: Sequence[TreeBuilder],
) -> tuple[list[Tree] | list[NaryTree], dict[str, int]]:
    """Build the trees of a corpus, which are all binary or all n-ary.

    Returns:
        The trees, and the corpus size of n-ary ones.
    """
    numbers = {len(own) for tree in builders for own in tree.children if own != LEAF}
    if numbers <= {2}:
        return [tree.build_binary() for tree in builders], {}
    return [tree.build_nary() for tree in builders], {MAX_CHILDREN: max(numbers)}


def _parse_vertex(parts: Parts) -> tuple[str | None, tuple[int, int]]:
    """Return the word of a leaf, or None and the children of an internal vertex."""
    if len(parts) == 1 and isinstance(word := parts[0], str):
        return word, LEAF
    if len(parts) == 2:
        left, right = parts
        if isinstance(left, int) and isinstance(right, int):
            return None, (left, right)
    raise DataError(_explain_invalid_vertex(parts))


def _explain_invalid_vertex(parts: Parts) -> str:
    words = [part for part in parts if isinstance(part, str)]
    n_children = len(parts) - len(words)
    if words and n_children:
        return f"a vertex has both the word {words[0]!r} and children"
    if words:
        return f"a leaf has {len(words)} words, not one"
    if n_children:
        return f"a vertex has {n_children} {'child' if n_children == 1 else 'children'}, not two"
    return "a leaf has an empty word"
