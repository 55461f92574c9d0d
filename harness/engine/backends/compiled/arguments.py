"""The arrays that programs use: each says where it is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.memory import Memory
from harness.engine.cpu_kernels.context import all_apart
from harness.engine.cpu_kernels.vectors import LANES
from harness.engine.lowering.plan import BufferName, Slots
from harness.engine.rows import fields as parts
from harness.engine.rows.fields import Fields
from harness.engine.rows.geometry import Index

# From how many rows of a function on its products take copies of W^T. A library rearranges W^T for
# each product of several rows, at a cost that grows with the rows; a copy costs its time once.
# Products of few rows are our own, as fast with W^T (AVX-512): there the batches of four trees do
# not earn it yet.
COPIES_FROM = 100 if LANES == 16 else 40
NOTHING: Index = np.zeros(0, dtype=np.int64)


class Argument(ABC):
    """A frozen value; equal ones have one place in the table of addresses.

    Its array moves when memory grows, and else stays.
    """

    __slots__ = ()

    @abstractmethod
    def find(self, memory: Memory) -> NDArray[Any]:
        """Return the array, as it is in this mini-batch."""


class OfLayout(Argument):
    """Part of the layout, which every mini-batch has anew: all of these are found at once."""

    __slots__ = ()

    @abstractmethod
    def number(self, fields: Fields) -> int:
        """The number of the array in the layout."""

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.layout.array(self.number(memory.layout.fields))


class Renewed(Argument):
    """Stays where it is, and is to be brought up to date for every mini-batch."""

    __slots__ = ()

    @abstractmethod
    def renew(self, memory: Memory) -> None:
        """Bring it up to date."""


class Moving(Argument):
    """Another array for every mini-batch, where several threads run."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BufferOf(Argument):
    """Rows of a buffer (n, width); type_id is 0 for buffers that all functions share."""

    type_id: int
    name: BufferName

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.buffers[self.type_id, self.name]


@dataclass(frozen=True, slots=True)
class ParameterOf(Argument):
    """A parameter in its own shape."""

    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.values[self.name]


@dataclass(frozen=True, slots=True)
class TransposedOf(Renewed):
    """A copy of a matrix, rows and columns exchanged.

    Up to date where a function has COPIES_FROM rows, which CountOf tells.
    """

    type_id: int
    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.transposed(self.name, up_to_date=False)

    def renew(self, memory: Memory) -> None:
        if memory.layout.n_of(self.type_id) >= COPIES_FROM:
            memory.parameters.transposed(self.name, up_to_date=True)


@dataclass(frozen=True, slots=True)
class HalfOf(Renewed):
    """A matrix rounded to bfloat16, as it is in this mini-batch."""

    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.half(self.name)

    def renew(self, memory: Memory) -> None:
        memory.parameters.half(self.name)


@dataclass(frozen=True, slots=True)
class GradientOf(Argument):
    """The gradient of a parameter in its own shape; of no meaning until it was written."""

    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.gradient(self.name)


@dataclass(frozen=True, slots=True)
class WrittenOf(Argument):
    """Whether the gradient of a parameter was written in this mini-batch (n_threads,)."""

    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.written(self.name)


@dataclass(frozen=True, slots=True)
class FilledOf(Argument):
    """Whether a gather's buffer holds the rows of all batches, those read in place too: of every
    thread what it knows (n_threads,).
    """

    type_id: int
    name: BufferName

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.filled(self.type_id, self.name)


@dataclass(frozen=True, slots=True)
class ApartOf(Moving):
    """Whether the rows that each batch's gather reads differ, and those of all at once.

    Nothing where one thread runs alone, which asks for none of it.
    """

    type_id: int
    slots: Slots

    def find(self, memory: Memory) -> NDArray[Any]:
        if self.type_id not in memory.layout or memory.parameters.n_threads == 1:
            return NOTHING
        bounds = EdgeBoundsOf if self.slots is None else StartsOf
        index = IndexOf(self.type_id, self.slots).find(memory)
        n_parts = 1 if self.slots is None else len(self.slots)
        return all_apart(index, bounds(self.type_id).find(memory), n_parts)


@dataclass(frozen=True, slots=True)
class PullOf(OfLayout):
    """What the rows of a function pull from outside (n,)."""

    type_id: int
    name: str

    def number(self, fields: Fields) -> int:
        return fields.of_pull(self.type_id, self.name)


@dataclass(frozen=True, slots=True)
class IndexOf(OfLayout):
    """Rows of the children that a gather reads."""

    type_id: int
    slots: Slots

    def number(self, fields: Fields) -> int:
        return fields.of_gather(self.type_id, self.slots, parts.INDEX)


@dataclass(frozen=True, slots=True)
class RunsOf(OfLayout):
    """Where the rows of each batch's gather begin if they need no copy, and of all at once."""

    type_id: int
    slots: Slots

    def number(self, fields: Fields) -> int:
        return fields.of_gather(self.type_id, self.slots, parts.RUNS)


@dataclass(frozen=True, slots=True)
class EdgeStartOf(OfLayout):
    """Where the edges of every row begin (n + 1,)."""

    type_id: int

    def number(self, fields: Fields) -> int:
        return fields.of_gather(self.type_id, None, parts.EDGE_START)


@dataclass(frozen=True, slots=True)
class EdgeBoundsOf(OfLayout):
    """Where the edges of every batch begin, and where the last one's end (n_batches + 1,)."""

    type_id: int

    def number(self, fields: Fields) -> int:
        return fields.of_gather(self.type_id, None, parts.EDGE_BOUNDS)


@dataclass(frozen=True, slots=True)
class StartsOf(OfLayout):
    """Where every batch's rows begin, and where the last one's end (n_batches + 1,)."""

    type_id: int

    def number(self, fields: Fields) -> int:
        return fields.of_function(self.type_id, parts.STARTS)


@dataclass(frozen=True, slots=True)
class FirstRowOf(OfLayout):
    """Where every batch begins among the rows of the states (n_batches,)."""

    type_id: int

    def number(self, fields: Fields) -> int:
        return fields.of_function(self.type_id, parts.FIRST_ROW)


@dataclass(frozen=True, slots=True)
class CountOf(OfLayout):
    """How many rows a function has (1,)."""

    type_id: int

    def number(self, fields: Fields) -> int:
        return fields.of_function(self.type_id, parts.ROWS)
