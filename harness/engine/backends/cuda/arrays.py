"""The arrays of a mini-batch on the device: each says where it is found.

Float arrays are arguments of the generated kernels; arrays of words (int32) lie one behind the
other in one buffer, which is uploaded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.engine.backend import Arrangement
from harness.engine.lowering.plan import BufferName, Slots
from harness.engine.rows.geometry import TypeGeometry

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
