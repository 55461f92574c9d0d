"""Arrays of a mini-batch on the device, each with a rule that computes it.

Float arrays are arguments of the generated kernels. All int32 arrays ("words") are stored one after
another in one buffer, which is uploaded once. Sorting is stable: rows with equal keys keep their
order, so that sums over them always add in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.engine.backend import Arrangement
from dynbatch.harness.engine.lowering.plan import BufferName, Slots, count_slots
from dynbatch.harness.engine.rows.fields import EDGE_START, INDEX, TypeGeometry

T = TypeVar("T")
Words = NDArray[np.int32]
NO_WORDS: Words = np.zeros(0, dtype=np.int32)


# --- float arrays ---


@dataclass(frozen=True, slots=True)
class BufferOf:
    """A buffer of a vertex function, or of all functions if type_id is SHARED."""

    type_id: int
    name: BufferName


@dataclass(frozen=True, slots=True)
class ParameterOf:
    """A parameter in its own shape."""

    name: str


@dataclass(frozen=True, slots=True)
class GradientOf:
    """The gradient of a parameter, in the parameter's shape."""

    name: str


@dataclass(frozen=True, slots=True)
class TransposedOf:
    """Transposed copy of a parameter, which matmuls read as fast as the parameter itself."""

    name: str


@dataclass(frozen=True, slots=True)
class PartialOf:
    """Partial sums of one block of a parameter's gradient, next to each other in `parts` blocks.

    Attributes:
        row: first row of the block in the gradient.
        column: first column of the block in the gradient.
    """

    name: str
    row: int
    column: int
    height: int
    width: int
    parts: int


@dataclass(frozen=True, slots=True)
class LearningRate:
    """The learning rate, as an array of one element."""


FloatArray = BufferOf | ParameterOf | GradientOf | TransposedOf | PartialOf | LearningRate


# --- int32 arrays ---


@dataclass(frozen=True, eq=False, slots=True)
class Indices:
    """Arrangement of a mini-batch, with intermediate results that several int32 arrays share.

    Attributes:
        _memo: computed values by key. Keys are short tuples of plain values, because hashing a
            WordArray takes longer than computing most of them.
    """

    rows: Arrangement
    _memo: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def memoize(self, key: tuple[Any, ...], find: Callable[[], T]) -> T:
        """Return the value stored under a key; compute and store it first if necessary."""
        if key not in self._memo:
            self._memo[key] = find()
        value: T = self._memo[key]
        return value


class WordArray(Protocol):
    """Frozen description of an int32 array; equal descriptions are one array of the mini-batch."""

    def find(self, indices: Indices) -> Words:
        """Return the array of a mini-batch."""


@dataclass(frozen=True, slots=True)
class ChildOf:
    """State rows of the children of every row.

    Attributes:
        slots: gathered slots, next to each other in the array; None: one row per edge.
    """

    type_id: int
    slots: Slots

    def find(self, indices: Indices) -> Words:
        return as_words(indices.rows.types.select_gathered(self.type_id, self.slots, INDEX))


@dataclass(frozen=True, slots=True)
class PullOf:
    """External input (`pull`) of every row."""

    type_id: int
    name: str

    def find(self, indices: Indices) -> Words:
        return as_words(indices.rows.types.select_pulled(self.type_id, self.name))


@dataclass(frozen=True, slots=True)
class EdgeStartOf:
    """Offsets of the edges of every row, (n + 1,)."""

    type_id: int

    def find(self, indices: Indices) -> Words:
        return as_words(indices.rows.types.select_gathered(self.type_id, None, EDGE_START))


@dataclass(frozen=True, slots=True)
class OwnerOf:
    """Row of the vertex that each edge belongs to.

    Attributes:
        in_states: count rows of the states, not rows of the function.
    """

    type_id: int
    in_states: bool

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        if geometry is None:
            return NO_WORDS
        edge_start = geometry.gathers[None].edge_start
        owner = np.arange(geometry.n_rows, dtype=np.int32).repeat(np.diff(edge_start))
        return state_rows(geometry)[owner] if self.in_states else owner


@dataclass(frozen=True, slots=True)
class Composed:
    """Composition of two index arrays: element i is then[first[i] * stride + at]."""

    first: WordArray
    then: WordArray
    stride: int = 1
    at: int = 0

    def find(self, indices: Indices) -> Words:
        first = self.first.find(indices)
        return self.then.find(indices)[first * self.stride + self.at] if len(first) else first


@dataclass(frozen=True, slots=True)
class StateRowOf:
    """Row of every vertex among the rows of the states."""

    type_id: int

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        return NO_WORDS if geometry is None else state_rows(geometry)


@dataclass(frozen=True, slots=True)
class CountOf:
    """Number of rows of a function, or of its edges, (1,)."""

    type_id: int
    of_edges: bool

    def find(self, indices: Indices) -> Words:
        geometry = indices.rows.types.get(self.type_id)
        n = 0 if geometry is None else geometry.n_edges if self.of_edges else geometry.n_rows
        return np.array([n], dtype=np.int32)


def state_rows(geometry: TypeGeometry) -> Words:
    """Return the row of every vertex of a function among the rows of the states."""
    starts, first_row = geometry.starts, geometry.first_row
    shift = (first_row - starts[:-1]).repeat(np.diff(starts))
    return as_words(np.arange(geometry.n_rows) + shift)


def as_words(values: NDArray[np.integer]) -> Words:
    """Convert to int32."""
    return values.astype(np.int32, copy=False)


Grouped = tuple[Words, Words]  # offsets of each key (n_keys + 1,), and the grouped positions
NONE = -1  # a missing row in an optional index


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
def find_last_readers(read: Words, n_rows: int) -> Words:
    """Return, for each of n_rows rows, the last position in `read` that reads it, or NONE."""
    positions = np.full(n_rows, NONE, dtype=np.int32)
    for k in range(len(read)):
        positions[read[k]] = k
    return positions


@compiled
def group_by_row(read: Words, n_rows: int) -> Grouped:
    """Group the positions in `read` by the row that they read, of n_rows rows."""
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
def group_by_word(words: Words, n_words: int) -> tuple[Words, Words, Words]:
    """Group positions by their word, of n_words words.

    Returns:
        The distinct words in the order of their first positions, (n,); offsets of their groups,
        (n + 1,); and the grouped positions.
    """
    group_of = np.full(n_words, NONE, dtype=np.int32)
    distinct = np.empty(len(words), dtype=np.int32)
    sizes = np.zeros(len(words) + 1, dtype=np.int32)
    n = 0
    for word in words:
        if group_of[word] == NONE:
            group_of[word], distinct[n] = n, word
            n += 1
        sizes[group_of[word] + 1] += 1
    for group in range(n):
        sizes[group + 1] += sizes[group]
    free = sizes[:n].copy()
    order = np.empty(len(words), dtype=np.int32)
    for k in range(len(words)):
        group = group_of[words[k]]
        order[free[group]] = k
        free[group] += 1
    return distinct[:n].copy(), sizes[: n + 1].copy(), order


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Rows of a table that the rows of a function looked up, and which of them looked each up.

    Attributes:
        n_words: rows of the table.
    """

    pull: PullOf
    n_words: int

    def group(self, indices: Indices) -> tuple[Words, Words, Words]:
        """Group the rows of the function by the table row that they looked up."""
        return indices.memoize(
            ("looked up", self.pull.type_id, self.pull.name),
            lambda: group_by_word(self.pull.find(indices), self.n_words),
        )


@dataclass(frozen=True, slots=True)
class DistinctWordsOf:
    """Distinct table rows that were looked up."""

    looked_up: LookedUp

    def find(self, indices: Indices) -> Words:
        return self.looked_up.group(indices)[0]


@dataclass(frozen=True, slots=True)
class LookupsStartOf:
    """Offsets in LookupsOf of the lookups of every distinct table row, (n + 1,)."""

    looked_up: LookedUp

    def find(self, indices: Indices) -> Words:
        return self.looked_up.group(indices)[1]


@dataclass(frozen=True, slots=True)
class LookupsOf:
    """Rows of the function, grouped by the table row that they looked up."""

    looked_up: LookedUp

    def find(self, indices: Indices) -> Words:
        return self.looked_up.group(indices)[2]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads of one state by one function through one slot, or through every edge.

    A reader holds the gradients that it contributes to the state in rows of its own buffers.

    Attributes:
        slots: slots of the gather; None: every edge.
        found_by: array that maps a row (or edge) of the function to the row with its gradient;
            None: the row itself.
        stride: with `offset`: row r uses element r * stride + offset of `found_by`.
        offset: see `stride`.
    """

    state: str
    type_id: int
    slots: Slots
    at: int = 0
    found_by: WordArray | None = None
    stride: int = 1
    offset: int = 0

    def read(self, indices: Indices) -> Words:
        """Return the state row that each row (or edge) of the function reads."""
        index = indices.rows.types.select_gathered(self.type_id, self.slots, INDEX)
        return as_words(index[self.at :: count_slots(self.slots)])

    def count_rows(self, indices: Indices) -> int:
        """Return the number of rows of the state."""
        return indices.rows.n_rows.get(self.state, 0)

    def group_rows(self, indices: Indices) -> Grouped:
        """Group the rows (or edges) of the function by the state row that they read."""
        return indices.memoize(
            (self.state, self.type_id, self.slots, self.at),
            lambda: group_by_row(self.read(indices), self.count_rows(indices)),
        )

    def is_single(self, indices: Indices) -> bool:
        """Return whether no state row is read more than once."""
        return not is_any_twice(self.read(indices), self.count_rows(indices))

    def find_gradient_rows(self, indices: Indices, own: Words) -> Words:
        """Return the rows that hold the gradients of the given rows (or edges).

        Args:
            own: rows (or edges) of the function, or NONE, which is returned unchanged.
        """
        if self.found_by is None or not len(own):
            return own
        there, has_one = own.copy(), own != NONE
        at = own[has_one] * self.stride + self.offset
        there[has_one] = self.found_by.find(indices)[at]
        return there


@dataclass(frozen=True, slots=True)
class ReaderRowOf:
    """For every row of a state, the row with its reader's gradient, or NONE."""

    reading: Reader

    def find(self, indices: Indices) -> Words:
        reading = self.reading
        own = find_last_readers(reading.read(indices), reading.count_rows(indices))
        return reading.find_gradient_rows(indices, own)


@dataclass(frozen=True, slots=True)
class ReadersStartOf:
    """Offsets in ReadersOf of the readers of every row of a state, (n + 1,)."""

    reading: Reader

    def find(self, indices: Indices) -> Words:
        return self.reading.group_rows(indices)[0]


@dataclass(frozen=True, slots=True)
class ReadersOf:
    """Rows with the gradients of all readers of a state, grouped by its rows."""

    reading: Reader

    def find(self, indices: Indices) -> Words:
        return self.reading.find_gradient_rows(indices, self.reading.group_rows(indices)[1])
