"""What a batch runs, as data: kernels, where their operands are, and where those arrays are found.

To find an array and its address takes Python a microsecond, and a mini-batch of one sentence has a
hundred arguments in five stages: most stay where they are, and where those of the layout are is
filled in by one compiled call.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compiler.addresses import address_of
from harness.compiler.compiled import Compiled, compiled
from harness.compiler.pointers import put_word, word
from harness.engine.backends.compiled.memory import Memory
from harness.engine.cpu_kernels.context import Register, Taken, all_apart
from harness.engine.cpu_kernels.elementwise import Group
from harness.engine.cpu_kernels.team import Table
from harness.engine.cpu_kernels.vectors import LANES
from harness.engine.lowering.plan import BufferName, Slots, count_slots
from harness.engine.rows import fields as parts
from harness.engine.rows.fields import Fields, Index
from harness.vertex.operators import EDGE

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
        n_parts = count_slots(self.slots)
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


_PLACE = struct.Struct("2q")


class Found:
    """The place (address, rows) of every argument.

    places (n, 2): the table; address: of it.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._has_threads = memory.parameters.n_threads > 1
        self._arguments: list[Argument] = []
        self._numbers_of: dict[Argument, int] = {}
        self._take_table(np.zeros((0, 2), dtype=np.int64))
        self._kept: dict[int, NDArray[Any]] = {}  # whose memory nobody else holds
        self._moving: list[tuple[int, Moving]] = []
        self._renewed: list[Renewed] = []
        self._of_layout: list[tuple[int, OfLayout]] = []
        self._numbers = np.zeros((0, 2), dtype=np.int64)  # which place, which array of the layout
        self._fields: Fields | None = None
        self._found_for = (-1, -1)

    def _take_table(self, places: Table) -> None:
        self.places, self.address = places, address_of(places)

    def place_of(self, argument: Argument) -> int:
        """Return the place of an argument, a new one where it has none."""
        k = self._numbers_of.setdefault(argument, len(self._arguments))
        if k == len(self._arguments):
            self._arguments.append(argument)
            if isinstance(argument, OfLayout):
                self._of_layout.append((k, argument))
            elif isinstance(argument, Moving) and self._has_threads:
                self._moving.append((k, argument))
            elif isinstance(argument, Renewed):
                self._renewed.append(argument)
            if k >= len(self.places):
                self._take_table(np.zeros((2 * k + 64, 2), dtype=np.int64))
            self._fields, self._found_for = None, (-1, -1)
        return k

    def look(self) -> None:
        """Find what may have moved."""
        memory = self.memory
        n_grown, n_arranged = memory.n_grown, memory.n_arranged
        if self._found_for == (n_grown, n_arranged):
            return
        self.keep_up()
        layout = memory.layout
        if layout.fields is not self._fields:
            self._fields = layout.fields
            self._numbers = self.parts(layout.fields)
            self._numbers_address = address_of(self._numbers)
        put_parts(
            self.address, self._numbers_address, len(self._numbers), address_of(layout.numbers),
            address_of(layout.bounds),
        )  # fmt: skip
        for k, moving in self._moving:
            array = self._kept[k] = moving.find(memory)
            self._put(k, array)
        for renewed in self._renewed:
            renewed.renew(memory)
        self._found_for = n_grown, n_arranged

    def keep_up(self) -> None:
        """Find what moves when memory grows, and else stays."""
        n_grown = self.memory.n_grown
        if self._found_for[0] != n_grown:
            for k, argument in enumerate(self._arguments):
                if not isinstance(argument, OfLayout):
                    self._put(k, argument.find(self.memory))
            self._found_for = n_grown, -1

    def _put(self, k: int, array: NDArray[Any]) -> None:
        _PLACE.pack_into(self.places.data, _PLACE.size * k, address_of(array), len(array))

    def parts(self, fields: Fields) -> NDArray[np.int64]:
        """Which place is which array of the layout (n, 2)."""
        numbers = [(k, one.number(fields)) for k, one in self._of_layout]
        return np.array(numbers, dtype=np.int64).reshape(-1, 2)

    @property
    def is_steady(self) -> bool:
        """Whether only what is of the layout changes from one mini-batch to the next."""
        return not self._moving and not self._renewed


@compiled
def put_parts(places: int, numbers: int, n: int, array: int, bounds: int) -> None:
    """Write where parts of an array of int64 are.

    numbers (n, 2): which place, and which part. bounds (n_parts, 2): where each part begins, and
    how long it is.
    """
    for k in range(n):
        place, part = word(numbers, 2 * k), word(numbers, 2 * k + 1)
        put_word(places, 2 * place, array + 8 * word(bounds, 2 * part))
        put_word(places, 2 * place + 1, word(bounds, 2 * part + 1))


INDEX_BYTES = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Children's states that are read where they lie, in batches whose children follow on.

    runs: of each batch, the first row that it reads, or -1. pitch: bytes from one state to the
    next. at: the register with the row in the batch.
    """

    runs: Argument
    states: Argument
    pitch: int
    at: Register


@dataclass(frozen=True, slots=True)
class Operand:
    """Rows of an array: the first, the bytes between rows, and the bytes to the first column.

    width: bytes of a row that are read or written, for those who check and list; 0: unknown.
    """

    array: Argument
    register: Register = Register.ZERO
    pitch: int = 0
    offset: int = 0
    width: int = 0
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """A call of a kernel for the rows that a thread takes.

    count: the register with how many rows there are. unless: it is skipped for batches whose
    children follow on. bytes_per_row: that it moves, for batches whose children do not follow on,
    where `bytes_unless` says so. apart: of each list of children, whether no two vertices of a
    batch have one in common. moves: whether it only moves data. whole_only: whether it is for
    stages that take all rows at once. meets: whether threads wait for one another behind it.
    counts_itself: whether the kernel counts what it does, as one launch, several or none.
    """

    kernel: Compiled[..., Any] | Group
    operands: tuple[Operand, ...]
    constants: tuple[int, ...] = ()
    count: Register = Register.N
    taken: Taken = Taken.SHARE
    apart: tuple[Argument, ...] = ()
    unless: Argument | None = None
    bytes_per_row: int = 0
    bytes_unless: Argument | None = None
    moves: bool = False
    whole_only: bool = False
    meets: bool = False
    counts_itself: bool = False

    @property
    def name(self) -> str:
        """What a reader knows the kernel by."""
        if isinstance(self.kernel, Compiled):
            return self.kernel.__name__
        return "+".join(one.operator for one in self.kernel.operations)


def count_register(domain: str) -> Register:
    """The register with the number of a domain's rows."""
    return Register.N_EDGES if domain == EDGE else Register.N
