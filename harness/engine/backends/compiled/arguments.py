"""The arrays that generated code is called with: each says where it is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.memory import Memory
from harness.engine.cpu_kernels.shares import all_apart
from harness.engine.lowering.plan import BufferName, Slots
from harness.engine.rows.layout import EMPTY

# From how many rows of a function on its products take copies of W^T. A library rearranges W^T for
# each product of several rows, at a cost that grows with the rows; a copy costs its time once. The
# batches of one sentence do not earn it, those of four do.
COPIES_FROM = 40
# Stand in for the rows of a function that a mini-batch lacks.
NO_ROWS: NDArray[np.int32] = np.zeros(1, dtype=np.int32)
YES, NO = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)


class Argument(Protocol):
    """A frozen value; equal ones are one argument of the generated function.

    moves: whether every mini-batch has another array, or one that is to be brought up to date;
    others move when memory grows.
    """

    moves: ClassVar[bool]

    def find(self, memory: Memory) -> NDArray[Any]:
        """Return the array, as it is in this mini-batch."""


@dataclass(frozen=True, slots=True)
class BufferOf:
    """Rows of a buffer (n, width); type_id is 0 for buffers that all functions share."""

    moves: ClassVar[bool] = False
    type_id: int
    name: BufferName

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.buffers[self.type_id, self.name]


@dataclass(frozen=True, slots=True)
class ParameterOf:
    """A parameter in its own shape."""

    moves: ClassVar[bool] = False
    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.values[self.name]


@dataclass(frozen=True, slots=True)
class TransposedOf:
    """A copy of a matrix, rows and columns exchanged; of use where HasManyRows says so."""

    moves: ClassVar[bool] = True
    type_id: int
    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        is_used = _has_many_rows(memory, self.type_id)
        return memory.parameters.transposed(self.name, up_to_date=is_used)


@dataclass(frozen=True, slots=True)
class HasManyRows:
    """Whether a function has so many rows in this mini-batch that copies of W^T pay (1,)."""

    moves: ClassVar[bool] = True
    type_id: int

    def find(self, memory: Memory) -> NDArray[Any]:
        return YES if _has_many_rows(memory, self.type_id) else NO


def _has_many_rows(memory: Memory, type_id: int) -> bool:
    geometry = memory.geometry(type_id)
    return geometry is not None and geometry.rows.n >= COPIES_FROM


@dataclass(frozen=True, slots=True)
class HalfOf:
    """A matrix rounded to bfloat16, as it is in this mini-batch."""

    moves: ClassVar[bool] = True
    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.half(self.name)


@dataclass(frozen=True, slots=True)
class GradientOf:
    """The gradient of a parameter in its own shape; of no meaning until it was written."""

    moves: ClassVar[bool] = False
    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.gradient(self.name)


@dataclass(frozen=True, slots=True)
class WrittenOf:
    """Whether the gradient of a parameter was written in this mini-batch (n_threads,)."""

    moves: ClassVar[bool] = False
    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.parameters.written(self.name)


@dataclass(frozen=True, slots=True)
class PullOf:
    """What the rows of a function pull from outside (n,)."""

    moves: ClassVar[bool] = True
    type_id: int
    name: str

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        return EMPTY if geometry is None else geometry.pulls[self.name]


@dataclass(frozen=True, slots=True)
class IndexOf:
    """Rows of the children that a gather reads."""

    moves: ClassVar[bool] = True
    type_id: int
    slots: Slots

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        return EMPTY if geometry is None else geometry.gathers[self.slots].index


@dataclass(frozen=True, slots=True)
class RunsOf:
    """Where the rows of each batch's gather begin if they need no copy, and of all at once."""

    moves: ClassVar[bool] = True
    type_id: int
    slots: Slots

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        return EMPTY if geometry is None else geometry.gathers[self.slots].runs


@dataclass(frozen=True, slots=True)
class ApartOf:
    """Whether the rows that each batch's gather reads differ, and those of all at once.

    Nothing where one thread runs alone, which asks for none of it.
    """

    moves: ClassVar[bool] = True
    type_id: int
    slots: Slots

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        if geometry is None or memory.parameters.n_threads == 1:
            return EMPTY
        gather, starts = geometry.gathers[self.slots], geometry.rows.starts
        if self.slots is None:
            return all_apart(gather.index, gather.edge_start[starts], 1)
        return all_apart(gather.index, starts, len(self.slots))


@dataclass(frozen=True, slots=True)
class FilledOf:
    """Whether a gather's buffer holds the rows of all batches, those read in place too: of every
    thread what it knows (n_threads,).
    """

    moves: ClassVar[bool] = False
    type_id: int
    name: BufferName

    def find(self, memory: Memory) -> NDArray[Any]:
        return memory.filled(self.type_id, self.name)


@dataclass(frozen=True, slots=True)
class EdgeStartOf:
    """Where the edges of every row begin (n + 1,)."""

    moves: ClassVar[bool] = True
    type_id: int

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        return EMPTY if geometry is None else geometry.gathers[None].edge_start


@dataclass(frozen=True, slots=True)
class EdgeBoundsOf:
    """Where the edges of every batch begin, and where the last one's end (n_batches + 1,)."""

    moves: ClassVar[bool] = True
    type_id: int

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        return (
            EMPTY if geometry is None else geometry.gathers[None].edge_start[geometry.rows.starts]
        )


@dataclass(frozen=True, slots=True)
class StartsOf:
    """Where every batch's rows begin, and where the last one's end (n_batches + 1,)."""

    moves: ClassVar[bool] = True
    type_id: int

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        return NO_ROWS if geometry is None else geometry.rows.starts


@dataclass(frozen=True, slots=True)
class FirstRowOf:
    """Where every batch begins among the rows of the states (n_batches,)."""

    moves: ClassVar[bool] = True
    type_id: int

    def find(self, memory: Memory) -> NDArray[Any]:
        geometry = memory.geometry(self.type_id)
        return NO_ROWS if geometry is None else geometry.rows.first_row
