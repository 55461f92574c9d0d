"""The arrays of a mini-batch on the device: each says where it is found.

Float arrays are arguments of the generated kernels; arrays of words (int32) lie one behind the
other in one buffer, which is uploaded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.engine.backend import Arrangement
from harness.engine.lowering.plan import BufferName, Slots
from harness.engine.rows.geometry import TypeGeometry

Words = NDArray[np.int32]
NONE = -1  # where an optional index has no row
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


class WordArray(Protocol):
    """A frozen value; equal ones are one array of the mini-batch."""

    def find(self, rows: Arrangement) -> Words:
        """Return the words of a mini-batch."""


@dataclass(frozen=True, slots=True)
class ChildOf:
    """Rows of the children's states, slots side by side; slots None: one an edge."""

    type_id: int
    slots: Slots

    def find(self, rows: Arrangement) -> Words:
        geometry = rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else _words(geometry.gathers[self.slots].index)


@dataclass(frozen=True, slots=True)
class PullOf:
    """What every row pulls."""

    type_id: int
    name: str

    def find(self, rows: Arrangement) -> Words:
        geometry = rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else _words(geometry.pulls[self.name])


@dataclass(frozen=True, slots=True)
class EdgeStartOf:
    """Where the edges of every row begin (n + 1,)."""

    type_id: int

    def find(self, rows: Arrangement) -> Words:
        geometry = rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else _words(geometry.gathers[None].edge_start)


@dataclass(frozen=True, slots=True)
class OwnerOf:
    """The row of every edge's vertex: among the function's, or among those of the states."""

    type_id: int
    in_states: bool

    def find(self, rows: Arrangement) -> Words:
        geometry = rows.types.get(self.type_id)
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

    def find(self, rows: Arrangement) -> Words:
        first = self.first.find(rows)
        return self.then.find(rows)[first * self.stride + self.at] if len(first) else first


@dataclass(frozen=True, slots=True)
class StateRowOf:
    """The row of every vertex among those of the states."""

    type_id: int

    def find(self, rows: Arrangement) -> Words:
        geometry = rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else state_rows(geometry)


@dataclass(frozen=True, slots=True)
class CountOf:
    """How many rows a function has, or how many edges (1,)."""

    type_id: int
    of_edges: bool

    def find(self, rows: Arrangement) -> Words:
        geometry = rows.types.get(self.type_id)
        n = 0 if geometry is None else geometry.n_edges if self.of_edges else geometry.rows.n
        return np.array([n], dtype=np.int32)


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

    def pairs(self, rows: Arrangement) -> tuple[Words, Words]:
        """Rows of the children's states, and for each the row in which its gradient lies."""
        geometry = rows.types.get(self.type_id)
        if geometry is None:
            return NO_WORDS, NO_WORDS
        n_slots = 1 if self.slots is None else len(self.slots)
        read = _words(geometry.gathers[self.slots].index)[self.at :: n_slots]
        own = np.arange(len(read), dtype=np.int32)
        if self.found_by is not None:
            own = self.found_by.find(rows)[own * self.stride + self.place]
        return read, own

    def is_single(self, rows: Arrangement) -> bool:
        """Whether no state is read more than once."""
        read, _ = self.pairs(rows)
        return not len(read) or int(np.bincount(read).max()) <= 1


@dataclass(frozen=True, slots=True)
class ReaderRowOf:
    """For every row of a state the one that reads it, or NONE."""

    reading: Reader

    def find(self, rows: Arrangement) -> Words:
        found = np.full(rows.n_rows.get(self.reading.state, 0), NONE, dtype=np.int32)
        read, readers = self.reading.pairs(rows)
        found[read] = readers
        return found


@dataclass(frozen=True, slots=True)
class ReadersStartOf:
    """For every row of a state where its readers begin in ReadersOf (n + 1,)."""

    reading: Reader

    def find(self, rows: Arrangement) -> Words:
        read, _ = self.reading.pairs(rows)
        n_rows = rows.n_rows.get(self.reading.state, 0)
        return _starts(np.bincount(read, minlength=n_rows))


@dataclass(frozen=True, slots=True)
class ReadersOf:
    """All readers of a state, row by row of it."""

    reading: Reader

    def find(self, rows: Arrangement) -> Words:
        read, readers = self.reading.pairs(rows)
        return readers[read.argsort(kind="stable")]


@dataclass(frozen=True, slots=True)
class WordsOf:
    """The different words that a function looks up, in order."""

    pull: PullOf

    def find(self, rows: Arrangement) -> Words:
        return np.unique(self.pull.find(rows))


@dataclass(frozen=True, slots=True)
class LookupsStartOf:
    """For every one of WordsOf where its rows begin in LookupsOf (n + 1,)."""

    pull: PullOf

    def find(self, rows: Arrangement) -> Words:
        return _starts(np.unique(self.pull.find(rows), return_counts=True)[1])


@dataclass(frozen=True, slots=True)
class LookupsOf:
    """The rows that look words up, word by word; found_by: see Reader."""

    pull: PullOf
    found_by: WordArray | None = None

    def find(self, rows: Arrangement) -> Words:
        order = _words(self.pull.find(rows).argsort(kind="stable"))
        return order if self.found_by is None else self.found_by.find(rows)[order]


def state_rows(geometry: TypeGeometry) -> Words:
    """The row of every vertex of a function among those of the states."""
    starts, first_row = geometry.rows.starts, geometry.rows.first_row
    shift = (first_row - starts[:-1]).repeat(np.diff(starts))
    return _words(np.arange(geometry.rows.n) + shift)


def _words(values: NDArray[np.integer]) -> Words:
    return values.astype(np.int32, copy=False)


def _starts(counts: NDArray[np.integer]) -> Words:
    starts = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=starts[1:])
    return starts
