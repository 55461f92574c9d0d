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


FloatArray = BufferOf | ParameterOf | GradientOf


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
NONE = -1  # where an optional index has no row


@compiled
def is_any_twice(read: Words, n_rows: int) -> bool:
    """Return whether any row is read more than once."""
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
        """Return whether no state is read more than once."""
        return not is_any_twice(self.read(indices), self.n_rows(indices))

    def found(self, indices: Indices, own: Words) -> Words:
        """The rows in which the gradients of these of its rows (or edges) lie; NONE stays."""
        if self.found_by is None or not len(own):
            return own
        there, has_one = own.copy(), own != NONE
        at = own[has_one] * self.stride + self.place
        there[has_one] = self.found_by.find(indices)[at]
        return there


@dataclass(frozen=True, slots=True)
class ReaderRowOf:
    """For every row of a state the one that reads it, or NONE."""

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
