"""Inputs of the benchmark: frozen values of integer arrays that check themselves when built."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.errors import DataError
from harness.values.arrays import IntArray, int_array
from harness.values.parsed import ParsedSentence, check_equally_long, check_ids

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


@dataclass(frozen=True, eq=False, slots=True)
class Lattice:
    """One sentence as a lattice: states between characters, arcs that are characters or words.

    tags (n_states,): class of every state; state 0 stands before the first character.
    arc_start (n_states + 1,): the arcs into state i are arc_start[i] to arc_start[i + 1].
    sources (n_arcs,): the state in which an arc begins.
    tokens (n_arcs,): id of its character or word; these are numbered apart.
    arc_counts (n_states,): number of arcs into each state.

    State 0 has no arcs. The first arc into any other state i is its character, from state i - 1;
    all others are words, from states before that. Raises DataError where this does not hold.
    """

    tags: IntArray
    arc_start: IntArray
    sources: IntArray
    tokens: IntArray
    arc_counts: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("tags", "arc_start", "sources", "tokens"):
            object.__setattr__(self, name, int_array(getattr(self, name)))
        self._check_lengths()
        object.__setattr__(self, "arc_counts", int_array(np.diff(self.arc_start)))
        self._check_arcs()

    def _check_lengths(self) -> None:
        n, starts = self.n_states, self.arc_start
        if n < 2:
            raise DataError(f"a lattice has {n} states; it needs at least 2, for one character")
        if len(starts) != n + 1 or starts[0] != 0 or starts[-1] != len(self.sources):
            raise DataError(
                f"arc_start has {len(starts)} entries; it needs {n + 1}, from 0 to the number of"
                f" arcs, {len(self.sources)}"
            )
        if len(self.tokens) != len(self.sources):
            raise DataError(
                f"a lattice has {len(self.sources)} sources and {len(self.tokens)} tokens;"
                " each arc needs one of both"
            )

    def _check_arcs(self) -> None:
        n_arcs = self.arc_counts
        if n_arcs[0] != 0:
            raise DataError(f"state 0 has {n_arcs[0]} incoming arcs; nothing can come before it")
        if n_arcs[1:].min() < 1:
            state = 1 + int(np.flatnonzero(n_arcs[1:] < 1)[0])
            raise DataError(f"state {state} has no incoming arc; it needs its character's")
        targets = np.arange(self.n_states).repeat(n_arcs)
        forward = np.flatnonzero((self.sources >= targets) | (self.sources < 0))
        if len(forward):
            arc = forward[0]
            raise DataError(
                f"an arc into state {targets[arc]} comes from state {self.sources[arc]};"
                " it must come from a state before"
            )
        is_character = self.sources == targets - 1
        if not np.array_equal(is_character, self.is_character):
            state = targets[np.flatnonzero(is_character != self.is_character)[0]]
            raise DataError(
                f"state {state} has no character arc in the first place, or several; exactly the"
                f" first of its arcs must come from state {state - 1}"
            )
        if len(self.tokens) and self.tokens.min() < 0:
            raise DataError(f"token {self.tokens.min()} found; ids must not be negative")

    @property
    def n_states(self) -> int:
        """Characters and the state before them."""
        return len(self.tags)

    @property
    def n_arcs(self) -> int:
        """Characters and words together."""
        return len(self.sources)

    @property
    def is_character(self) -> NDArray[np.bool_]:
        """Whether each arc is a character (n_arcs,): the first into its state."""
        first = np.zeros(self.n_arcs, dtype=np.bool_)
        first[self.arc_start[1:-1]] = True
        return first


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """One sentence, a label at every word: the next word (language model) or its tag.

    words, labels (n,): ids. characters (m,): ids of the letters of the words that are spelled out
    since they are rare, one after the other; those of word i are char_start[i] to char_start[i + 1]
    (n + 1,), none where it is not rare. Without these two, no word is spelled out.

    Raises DataError where this does not hold, or for a sentence without words.
    """

    words: IntArray
    labels: IntArray
    char_start: IntArray = field(default_factory=lambda: int_array([]))
    characters: IntArray = field(default_factory=lambda: int_array([]))

    def __post_init__(self) -> None:
        for name in ("words", "labels", "char_start", "characters"):
            object.__setattr__(self, name, int_array(getattr(self, name)))
        if len(self.char_start) == 0:
            object.__setattr__(self, "char_start", int_array(np.zeros(len(self.words) + 1)))
        check_ids("a sentence", words=self.words, labels=self.labels)
        check_equally_long(words=self.words, labels=self.labels)
        starts, n = self.char_start, self.n_words
        if len(starts) != n + 1 or starts[0] != 0 or starts[-1] != len(self.characters):
            raise DataError(
                f"char_start has {len(starts)} entries; it needs {n + 1}, from 0 to the number of"
                f" characters, {len(self.characters)}"
            )
        if (starts[1:] < starts[:-1]).any():
            raise DataError("char_start decreases; the letters of a word must follow one another")
        if len(self.characters) and self.characters.min() < 0:
            raise DataError(f"character {self.characters.min()} found; ids must not be negative")

    @property
    def n_words(self) -> int:
        """Words of the sentence."""
        return len(self.words)


@dataclass(frozen=True, eq=False, slots=True)
class SentencePair:
    """A sentence and its translation.

    source (n,), target (m,): word ids, sentence marks included; m is at least 2, for a decoder
    reads all words of the target but the last and predicts all but the first.

    Raises DataError where this does not hold.
    """

    source: IntArray
    target: IntArray

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            object.__setattr__(self, name, int_array(getattr(self, name)))
        check_ids("a sentence pair", source=self.source, target=self.target)
        if len(self.target) < 2:
            raise DataError("a target has 1 word; it needs at least 2, one to read, one to predict")

    @property
    def n_steps(self) -> int:
        """Words that are predicted."""
        return len(self.target) - 1


Instance = Tree | Lattice | Chain | SentencePair | ParsedSentence


def length_of(instance: Instance) -> tuple[int, ...]:
    """Return numbers to sort by: leaves of a tree, characters of a lattice, words of a sentence.

    Of a pair those of the source, then of the target.
    """
    match instance:
        case Tree():
            return (instance.n_leaves,)
        case Lattice():
            return (instance.n_states - 1,)
        case Chain():
            return (instance.n_words,)
        case SentencePair():
            return (len(instance.source), len(instance.target))
        case ParsedSentence():
            return (len(instance.heads),)
