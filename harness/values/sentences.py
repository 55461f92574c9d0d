"""Sentences, alone, in pairs, or parsed: frozen values that check themselves when built."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from harness.errors import DataError
from harness.values import transitions
from harness.values.arrays import IntArray, int_array


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
        _check_ids("a sentence", words=self.words, labels=self.labels)
        _check_equally_long(words=self.words, labels=self.labels)
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
        _check_ids("a sentence pair", source=self.source, target=self.target)
        if len(self.target) < 2:
            raise DataError("a target has 1 word; it needs at least 2, one to read, one to predict")

    @property
    def n_steps(self) -> int:
        """Words that are predicted."""
        return len(self.target) - 1


@dataclass(frozen=True, eq=False, slots=True)
class ParsedSentence:
    """A sentence and its projective dependency tree.

    words, tags (n + 1,): ids of every token and its part of speech; the last token is the root.
    heads, relations (n,): of the other tokens; the root is head n.
    Derived, the transitions to this tree (harness.values.transitions): kinds (2 n,) is SHIFT, LEFT
    or RIGHT, arcs (2 n,) the relation that a transition gives (-1: SHIFT gives none), features
    (2 n, 8) the tokens that it looks at.

    Raises DataError where the heads make no tree, or one that is not projective.
    """

    words: IntArray
    tags: IntArray
    heads: IntArray
    relations: IntArray
    kinds: IntArray = field(init=False, repr=False)
    arcs: IntArray = field(init=False, repr=False)
    features: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("words", "tags", "heads", "relations"):
            object.__setattr__(self, name, int_array(getattr(self, name)))
        _check_ids("a parsed sentence", **{k: getattr(self, k) for k in ("words", "tags")})
        _check_ids("a parsed sentence", **{k: getattr(self, k) for k in ("heads", "relations")})
        _check_equally_long(words=self.words, tags=self.tags)
        _check_equally_long(heads=self.heads, relations=self.relations)
        n = len(self.heads)
        if len(self.words) != n + 1:
            raise DataError(
                f"a parsed sentence has {len(self.words)} words and {n} heads; it needs one word"
                " more, the root behind all others"
            )
        heads = self.heads.tolist()
        if max(heads) > n or not transitions.is_tree(heads):
            raise DataError("heads make no tree; every word must reach the root")
        derived = transitions.derive(heads)
        if derived is None:
            raise DataError("a tree is not projective; leave such sentences out")
        kinds, attached, features = derived
        relations = [-1 if token < 0 else int(self.relations[token]) for token in attached]
        object.__setattr__(self, "kinds", int_array(kinds))
        object.__setattr__(self, "arcs", int_array(relations))
        object.__setattr__(self, "features", int_array(features))

    @property
    def n_tokens(self) -> int:
        """Words and the root."""
        return len(self.words)

    @property
    def n_transitions(self) -> int:
        """Decisions of the parser: two a word."""
        return len(self.kinds)


def _check_ids(what: str, **arrays: IntArray) -> None:
    for name, array in arrays.items():
        if array.ndim != 1 or len(array) == 0:
            raise DataError(f"{what} has no {name}; it needs at least one")
        if array.min() < 0:
            raise DataError(f"{what} has {name} {array.min()}; ids must not be negative")


def _check_equally_long(**arrays: IntArray) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        found = " and ".join(f"{length} {name}" for name, length in lengths.items())
        raise DataError(f"a sentence has {found}; each word needs one of both")
