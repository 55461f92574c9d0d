"""The arrays of a mini-batch on the device: each says where it is found.

Float arrays are arguments of the generated kernels; arrays of words (int32) lie one behind the
other in one buffer, which is uploaded once. Orders are stable: rows with equal keys
follow one another as they did, so that sums over them are always added up alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import compiled
from harness.engine.backend import Arrangement
from harness.engine.lowering.plan import BufferName, Slots
from harness.engine.rows.fields import TypeGeometry

T = TypeVar("T")
Words = NDArray[np.int32]
SHARED = 0  # the type id of buffers that all functions have in common
NO_WORDS: Words = np.zeros(0, dtype=np.int32)


# --- floats ---


@dataclass(frozen=True, slots=True)
class BufferOf:
    """Rows of a buffer of a function, or of all (SHARED)."""

    type_id: int
    name: BufferName


@dataclass(frozen=True, slots=True)
class ParameterOf:
    """A parameter in its own shape."""

    name: str


@dataclass(frozen=True, slots=True)
class GradientOf:
    """The gradient of a parameter in its own shape."""

    name: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a whole mini-batch: the losses of its functions."""


FloatArray = BufferOf | ParameterOf | GradientOf | Totals


# --- words ---


@dataclass(frozen=True, eq=False, slots=True)
class Indices:
    """Rows of a mini-batch, and what several arrays are made of, which is found once.

    _found: by keys of few plain values, since hashes of arrays take longer than most of them.
    """

    rows: Arrangement
    _found: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def once(self, key: tuple[Any, ...], find: Callable[[], T]) -> T:
        """Return what was found under this key before, or is now."""
        if key not in self._found:
            self._found[key] = find()
        found: T = self._found[key]
        return found


class WordArray(Protocol):
    """A frozen value; equal ones are one array of the mini-batch."""

    def find(self, indices: Indices) -> Words:
        """Return the words of a mini-batch."""


@dataclass(frozen=True, slots=True)
class ChildOf:
    """Rows of the children's states, slots side by side; slots None: one an edge."""

    type_id: int
    slots: Slots

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else as_words(geometry.gathers[self.slots].index)


@dataclass(frozen=True, slots=True)
class PullOf:
    """What every row pulls."""

    type_id: int
    name: str

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else as_words(geometry.pulls[self.name])


@dataclass(frozen=True, slots=True)
class EdgeStartOf:
    """Where the edges of every row begin (n + 1,)."""

    type_id: int

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else as_words(geometry.gathers[None].edge_start)


@dataclass(frozen=True, slots=True)
class OwnerOf:
    """The row of every edge's vertex: among the function's, or among those of the states."""

    type_id: int
    in_states: bool

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        if geometry is None:
            return NO_WORDS
        edge_start = geometry.gathers[None].edge_start
        owner = np.arange(geometry.rows.n, dtype=np.int32).repeat(np.diff(edge_start))
        return state_rows(geometry)[owner] if self.in_states else owner


@dataclass(frozen=True, slots=True)
class Composed:
    """For every row of one array what another holds for its value r, at r * stride + at."""

    first: WordArray
    then: WordArray
    stride: int = 1
    at: int = 0

    def find(self, indices: Indices) -> Words:
        first = self.first.find(indices)
        return self.then.find(indices)[first * self.stride + self.at] if len(first) else first


@dataclass(frozen=True, slots=True)
class StateRowOf:
    """The row of every vertex among those of the states."""

    type_id: int

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else state_rows(geometry)


@dataclass(frozen=True, slots=True)
class CountOf:
    """How many rows a function has, or how many edges (1,)."""

    type_id: int
    of_edges: bool

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        n = 0 if geometry is None else geometry.n_edges if self.of_edges else geometry.rows.n
        return np.array([n], dtype=np.int32)


def state_rows(geometry: TypeGeometry) -> Words:
    """The row of every vertex of a function among those of the states."""
    starts, first_row = geometry.rows.starts, geometry.rows.first_row
    shift = (first_row - starts[:-1]).repeat(np.diff(starts))
    return as_words(np.arange(geometry.rows.n) + shift)


def as_words(values: NDArray[np.integer]) -> Words:
    """The same numbers in int32."""
    return values.astype(np.int32, copy=False)


Grouped = tuple[Words, Words]  # where the rows of each key begin (n_keys + 1,), and these rows
DIGIT_BITS = 11  # of a word, in one pass: 2048 counts stay in the first cache
NONE = -1  # where an optional index has no row


@compiled
def is_any_twice(read: Words, n_rows: int) -> bool:
    """Say whether any row is read more than once."""
    seen = np.zeros(n_rows, dtype=np.bool_)
    for row in read:
        if seen[row]:
            return True
        seen[row] = True
    return False


@compiled
def row_of_each(read: Words, n_rows: int) -> Words:
    """Return for each of n_rows the last that reads it, or NONE."""
    found = np.full(n_rows, NONE, dtype=np.int32)
    for k in range(len(read)):
        found[read[k]] = k
    return found


@compiled
def group_by_row(read: Words, n_rows: int) -> Grouped:
    """Return for each of n_rows all that read it."""
    starts = np.zeros(n_rows + 1, dtype=np.int32)
    for row in read:
        starts[row + 1] += 1
    for row in range(n_rows):
        starts[row + 1] += starts[row]
    free = starts[:-1].copy()
    order = np.empty(len(read), dtype=np.int32)
    for k in range(len(read)):
        order[free[read[k]]] = k
        free[read[k]] += 1
    return starts, order


@compiled
def group_by_word(words: Words) -> tuple[Words, Words, Words]:
    """Return the different words (n,), where the rows of each begin (n + 1,), and all rows.

    Sorted digit by digit: a vocabulary may be larger than a mini-batch by far.
    """
    order = np.empty(len(words), dtype=np.int32)
    for k in range(len(words)):
        order[k] = k
    digits, counts = 1 << DIGIT_BITS, np.empty((1 << DIGIT_BITS) + 1, dtype=np.int32)
    highest = 0
    for word in words:
        highest = max(highest, word)
    shift = 0
    while highest >> shift:
        counts[:] = 0
        for word in words:
            counts[((word >> shift) & (digits - 1)) + 1] += 1
        for digit in range(digits):
            counts[digit + 1] += counts[digit]
        moved = np.empty_like(order)
        for row in order:
            digit = (words[row] >> shift) & (digits - 1)
            moved[counts[digit]] = row
            counts[digit] += 1
        order = moved
        shift += DIGIT_BITS
    found = np.empty(len(words), dtype=np.int32)
    starts = np.zeros(len(words) + 1, dtype=np.int32)
    n = 0
    for k in range(len(order)):
        if k == 0 or words[order[k]] != words[order[k - 1]]:
            found[n], starts[n] = words[order[k]], k
            n += 1
    starts[n] = len(words)
    return found[:n].copy(), starts[: n + 1].copy(), order


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
