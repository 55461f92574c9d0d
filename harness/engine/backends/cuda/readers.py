"""Arrays of words that turn indices over: who reads a row of a state, and who looks a word up."""

from __future__ import annotations

from dataclasses import dataclass

from harness.engine.backends.cuda.arrays import (
    NO_WORDS,
    Indices,
    PullOf,
    WordArray,
    Words,
    as_words,
)
from harness.engine.backends.cuda.orders import (
    Grouped,
    group_by_row,
    group_by_word,
    is_any_twice,
    row_of_each,
)
from harness.engine.lowering.plan import Slots


@dataclass(frozen=True, slots=True)
class Reader:
    """Of one function's reading of a state through one slot (slots None: through every edge).

    at: which of the slots. found_by: of the row in which a gradient lies that is given back: its
    function's own row (or edge) where None, else what this array holds for it.
    stride, place: the element of that array for row r is r * stride + place.
    """

    state: str
    type_id: int
    slots: Slots
    at: int = 0
    found_by: WordArray | None = None
    stride: int = 1
    place: int = 0

    def read(self, indices: Indices) -> Words:
        """Rows of the children's states, row by row (or edge by edge) of the function."""
        geometry = indices.rows.types.get(self.type_id)
        if geometry is None:
            return NO_WORDS
        n_slots = 1 if self.slots is None else len(self.slots)
        return as_words(geometry.gathers[self.slots].index[self.at :: n_slots])

    def n_rows(self, indices: Indices) -> int:
        """Rows of the state."""
        return indices.rows.n_rows.get(self.state, 0)

    def grouped(self, indices: Indices) -> Grouped:
        """Rows (or edges) of the function by the row of the state that they read."""
        return indices.once(
            (self.state, self.type_id, self.slots, self.at),
            lambda: group_by_row(self.read(indices), self.n_rows(indices)),
        )

    def is_single(self, indices: Indices) -> bool:
        """Whether no state is read more than once."""
        return not is_any_twice(self.read(indices), self.n_rows(indices))

    def found(self, indices: Indices, own: Words) -> Words:
        """The rows in which the gradients of these of its rows (or edges) lie; -1 stays."""
        if self.found_by is None or not len(own):
            return own
        there, has_one = own.copy(), own >= 0
        at = own[has_one] * self.stride + self.place
        there[has_one] = self.found_by.find(indices)[at]
        return there


@dataclass(frozen=True, slots=True)
class ReaderRowOf:
    """For every row of a state the one that reads it, or -1."""

    reading: Reader

    def find(self, indices: Indices) -> Words:
        reading = self.reading
        own = row_of_each(reading.read(indices), reading.n_rows(indices))
        return reading.found(indices, own)


@dataclass(frozen=True, slots=True)
class ReadersStartOf:
    """For every row of a state where its readers begin in ReadersOf (n + 1,)."""

    reading: Reader

    def find(self, indices: Indices) -> Words:
        return self.reading.grouped(indices)[0]


@dataclass(frozen=True, slots=True)
class ReadersOf:
    """All readers of a state, row by row of it."""

    reading: Reader

    def find(self, indices: Indices) -> Words:
        return self.reading.found(indices, self.reading.grouped(indices)[1])


@dataclass(frozen=True, slots=True)
class WordsOf:
    """The different words that a function looks up, in order."""

    pull: PullOf

    def find(self, indices: Indices) -> Words:
        return _lookups(self.pull, indices)[0]


@dataclass(frozen=True, slots=True)
class LookupsStartOf:
    """For every one of WordsOf where its rows begin in LookupsOf (n + 1,)."""

    pull: PullOf

    def find(self, indices: Indices) -> Words:
        return _lookups(self.pull, indices)[1]


@dataclass(frozen=True, slots=True)
class LookupsOf:
    """The rows that look words up, word by word; found_by: see Reader."""

    pull: PullOf
    found_by: WordArray | None = None

    def find(self, indices: Indices) -> Words:
        order = _lookups(self.pull, indices)[2]
        return order if self.found_by is None else as_words(self.found_by.find(indices)[order])


def _lookups(pull: PullOf, indices: Indices) -> tuple[Words, Words, Words]:
    key = (pull.type_id, pull.name)
    return indices.once(key, lambda: group_by_word(pull.find(indices)))
