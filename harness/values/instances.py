"""Instances: immutable values of integer arrays, validated when built."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.errors import DataError
from dynbatch.harness.values.arrays import IntArray, IntTable, as_int_array, convert_attributes
from dynbatch.harness.values.parsed import ParsedSentence, check_equally_long, check_ids

TREE_ROWS = ("words", "labels", "left", "right")
STATE_ROWS, ARC_ROWS = ("arc_counts", "tags"), ("sources", "tokens")


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """Binary tree with vertices in post-order (children before parents, the root last).

    Attributes:
        words: (n,) word id of a leaf, -1 at an internal vertex.
        labels: (n,) class of each vertex.
        left: (n,) left child of an internal vertex, -1 at a leaf.
        right: (n,) right child of an internal vertex, -1 at a leaf.
        table: (4, n) the four arrays above as rows of one block, so that trees are concatenated in
            one copy.
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
        object.__setattr__(self, "table", as_int_array(np.stack(rows)))
        for name, row in zip(TREE_ROWS, self.table, strict=True):
            object.__setattr__(self, name, row)
        self._check()

    def _check(self) -> None:
        n = self.n_vertices
        if n == 0:
            raise DataError("a tree has no vertices; it needs at least one leaf")
        leaf = self.left < 0
        if not np.array_equal(leaf, self.right < 0):
            raise DataError("a vertex has one child: expected 0 or 2 children")
        if not np.array_equal(leaf, self.words >= 0):
            raise DataError(
                "a leaf has no word, or an internal vertex has one; only leaves have words"
            )
        children = np.concatenate([self.left[~leaf], self.right[~leaf]])
        parents = np.concatenate([np.flatnonzero(~leaf)] * 2)
        if np.any(children >= parents):
            raise DataError("a child comes after its parent; vertices must be in post-order")
        if not np.array_equal(np.sort(children), np.arange(n - 1)):
            raise DataError("a tree is not connected: each vertex but the root needs one parent")

    @property
    def n_vertices(self) -> int:
        return len(self.words)

    @property
    def n_leaves(self) -> int:
        return (self.n_vertices + 1) // 2

    @property
    def height(self) -> int:
        """Number of edges on the longest path from the root to a leaf."""
        heights = np.zeros(self.n_vertices, dtype=np.int32)
        for vertex in np.flatnonzero(self.left >= 0):
            heights[vertex] = 1 + max(heights[self.left[vertex]], heights[self.right[vertex]])
        return int(heights[-1])


@dataclass(frozen=True, eq=False, slots=True)
class NaryTree:
    """Tree with any number of children, with vertices in post-order as in Tree.

    Attributes:
        words: (n,) word id of a leaf, -1 at an internal vertex.
        labels: (n,) class of each vertex.
        child_start: (n + 1,) the children of vertex v are child_start[v] to child_start[v + 1].
        children: (n - 1,) children of all vertices, in order.
    """

    words: IntArray
    labels: IntArray
    child_start: IntArray
    children: IntArray

    def __post_init__(self) -> None:
        convert_attributes(self, "words", "labels", "child_start", "children")
        n, starts = self.n_vertices, self.child_start
        if n == 0:
            raise DataError("a tree has no vertices; it needs at least one leaf")
        if len(self.labels) != n or len(starts) != n + 1 or len(self.children) != n - 1:
            raise DataError(
                f"a tree of {n} words has {len(self.labels)} labels, {len(starts)} child_start and"
                f" {len(self.children)} children: expected {n}, {n + 1} and {n - 1}"
            )
        counts = np.diff(starts)
        if starts[0] != 0 or starts[-1] != n - 1 or counts.min() < 0:
            raise DataError(f"child_start does not increase from 0 to {n - 1}")
        if not np.array_equal(counts == 0, self.words >= 0):
            raise DataError(
                "a leaf has no word, or an internal vertex has one; only leaves have words"
            )
        if np.any(self.children >= np.arange(n).repeat(counts)):
            raise DataError("a child comes after its parent; vertices must be in post-order")
        if not np.array_equal(np.sort(self.children), np.arange(n - 1)):
            raise DataError("a tree is not connected: each vertex but the root needs one parent")

    @property
    def n_vertices(self) -> int:
        return len(self.words)

    @property
    def n_leaves(self) -> int:
        return int((self.words >= 0).sum())

    @property
    def height(self) -> int:
        """Number of edges on the longest path from the root to a leaf."""
        heights = [0] * self.n_vertices
        starts, children = self.child_start.tolist(), self.children.tolist()
        for v in range(self.n_vertices):
            below = children[starts[v] : starts[v + 1]]
            heights[v] = 1 + max(heights[c] for c in below) if below else 0
        return heights[-1]


@dataclass(frozen=True, eq=False, slots=True)
class Lattice:
    """Sentence as a lattice: states between characters, and arcs for characters and words.

    State 0 has no incoming arcs. The first arc into any other state i is its character, from state
    i - 1; all others are words from earlier states.

    Attributes:
        tags: (n_states,) class of each state; state 0 precedes the first character.
        arc_start: (n_states + 1,) the arcs into state i are arc_start[i] to arc_start[i + 1].
        sources: (n_arcs,) state at which each arc starts.
        tokens: (n_arcs,) id of each arc's character or word, which have separate ids.
        arc_counts: (n_states,) number of arcs into each state.
        states: (2, n_states) rows STATE_ROWS.
        arcs: (2, n_arcs) rows ARC_ROWS.
    """

    tags: IntArray
    arc_start: IntArray
    sources: IntArray
    tokens: IntArray
    arc_counts: IntArray = field(init=False, repr=False)
    states: IntTable = field(init=False, repr=False)
    arcs: IntTable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        convert_attributes(self, "tags", "arc_start", "sources", "tokens")
        self._check_lengths()
        object.__setattr__(self, "arc_counts", as_int_array(np.diff(self.arc_start)))
        self._check_arcs()
        for table, rows in (("states", STATE_ROWS), ("arcs", ARC_ROWS)):
            stacked = as_int_array(np.stack([getattr(self, name) for name in rows]))
            object.__setattr__(self, table, stacked)

    def _check_lengths(self) -> None:
        n = self.n_states
        if n < 2:
            raise DataError(f"a lattice has {n} states; it needs at least 2, for one character")
        _check_starts("arc_start", self.arc_start, n, "arcs", len(self.sources))
        if len(self.tokens) != len(self.sources):
            raise DataError(
                f"a lattice has {len(self.sources)} sources and {len(self.tokens)} tokens;"
                " each arc needs one of each"
            )

    def _check_arcs(self) -> None:
        n_arcs = self.arc_counts
        if n_arcs[0] != 0:
            raise DataError(f"state 0 has {n_arcs[0]} incoming arcs: expected 0")
        if n_arcs[1:].min() < 1:
            state = 1 + int(np.flatnonzero(n_arcs[1:] < 1)[0])
            raise DataError(f"state {state} has no incoming arc; add the arc of its character")
        targets = np.arange(self.n_states).repeat(n_arcs)
        forward = np.flatnonzero((self.sources >= targets) | (self.sources < 0))
        if len(forward):
            arc = forward[0]
            raise DataError(
                f"an arc into state {targets[arc]} comes from state {self.sources[arc]};"
                " it must come from an earlier state"
            )
        is_character = self.sources == targets - 1
        if not np.array_equal(is_character, self.is_character):
            state = targets[np.flatnonzero(is_character != self.is_character)[0]]
            raise DataError(
                f"state {state} has a misplaced character arc: expected its first arc, and no"
                f" other, to come from state {state - 1}"
            )
        if len(self.tokens) and self.tokens.min() < 0:
            raise DataError(f"token {self.tokens.min()} found; ids must not be negative")

    @property
    def n_states(self) -> int:
        return len(self.tags)

    @property
    def n_arcs(self) -> int:
        return len(self.sources)

    @property
    def is_character(self) -> NDArray[np.bool_]:
        """Flags (n_arcs,) of the arcs that are characters, the first into each state."""
        first = np.zeros(self.n_arcs, dtype=np.bool_)
        first[self.arc_start[1:-1]] = True
        return first


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """Sentence with a label for each word: the next word (language model) or its tag.

    Attributes:
        words: (n,) word ids.
        labels: (n,) label ids.
        char_start: (n + 1,) the letters of word i are char_start[i] to char_start[i + 1]; only rare
            words have any. If omitted, no word has letters.
        characters: (m,) ids of the letters of all rare words.
    """

    words: IntArray
    labels: IntArray
    char_start: IntArray = field(default_factory=lambda: as_int_array([]))
    characters: IntArray = field(default_factory=lambda: as_int_array([]))

    def __post_init__(self) -> None:
        convert_attributes(self, "words", "labels", "char_start", "characters")
        if len(self.char_start) == 0:
            object.__setattr__(self, "char_start", as_int_array(np.zeros(len(self.words) + 1)))
        check_ids("a sentence", words=self.words, labels=self.labels)
        check_equally_long(words=self.words, labels=self.labels)
        starts = self.char_start
        _check_starts("char_start", starts, self.n_words, "characters", len(self.characters))
        if (starts[1:] < starts[:-1]).any():
            raise DataError("char_start decreases; the letters of each word must be consecutive")
        if len(self.characters) and self.characters.min() < 0:
            raise DataError(f"character {self.characters.min()} found; ids must not be negative")

    @property
    def n_words(self) -> int:
        return len(self.words)


@dataclass(frozen=True, eq=False, slots=True)
class SentencePair:
    """Sentence and its translation.

    Attributes:
        source: (n,) word ids, including sentence marks.
        target: (m,) word ids, including sentence marks; m is at least 2, because a decoder reads
            all words except the last and predicts all except the first.
    """

    source: IntArray
    target: IntArray

    def __post_init__(self) -> None:
        convert_attributes(self, "source", "target")
        check_ids("a sentence pair", source=self.source, target=self.target)
        if len(self.target) < 2:
            raise DataError(
                "a target has 1 word: expected at least 2, one to read and one to predict"
            )

    @property
    def n_steps(self) -> int:
        return len(self.target) - 1


def _check_starts(name: str, starts: IntArray, n: int, what: str, n_members: int) -> None:
    """Check the starts of n groups of members, but not their order."""
    if len(starts) != n + 1 or starts[0] != 0 or starts[-1] != n_members:
        raise DataError(
            f"{name} has {len(starts)} entries; it needs {n + 1}, from 0 to the number of {what},"
            f" {n_members}"
        )


Instance = Tree | NaryTree | Lattice | Chain | SentencePair | ParsedSentence


def compute_sort_key(instance: Instance) -> tuple[int, ...]:
    """Return the length to sort by: leaves of a tree, characters of a lattice, or words.

    A pair has the words of the source, then those of the target.
    """
    match instance:
        case Tree() | NaryTree():
            return (instance.n_leaves,)
        case Lattice():
            return (instance.n_states - 1,)
        case Chain():
            return (instance.n_words,)
        case SentencePair():
            return (len(instance.source), len(instance.target))
        case ParsedSentence():
            return (len(instance.heads),)
