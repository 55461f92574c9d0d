"""What a batch runs, as data: kernels, where their operands are, and where those arrays are found.

To find an array and its address takes Python a microsecond, and a mini-batch of one sentence has a
hundred arguments in five stages: most stay where they are, and where those of the layout are is
filled in by one compiled call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import Compiled, address_of, compiled
from harness.compiler.pointers import put_word, word
from harness.engine.backends.compiled.memory import Memory
from harness.engine.cpu_kernels.context import Register, Taken, all_apart
from harness.engine.cpu_kernels.elementwise import Group
from harness.engine.cpu_kernels.team import Table
from harness.engine.cpu_kernels.vectors import LANES
from harness.engine.lowering.plan import SHARED, count_slots
from harness.engine.rows import fields as parts
from harness.engine.rows.fields import Fields, Index
from harness.vertex.operators import EDGE

# From how many rows of a function on its products take copies of W^T. A library rearranges W^T for
# each product of several rows, at a cost that grows with the rows; a copy costs its time once.
# Products of few rows are our own, as fast with W^T (AVX-512): there the batches of four trees do
# not earn it yet.
COPIES_FROM = 100 if LANES == 16 else 40
NOTHING: Index = np.zeros(0, dtype=np.int64)


class Kind(StrEnum):
    """Which array an argument is.

    Of parameters: PARAMETER in its own shape; TRANSPOSED, a copy, up to date where a function has
    COPIES_FROM rows, which COUNT tells; HALF, rounded to bfloat16; GRADIENT, of no meaning until
    WRITTEN (n_threads,) tells that it was, in this mini-batch.
    Of functions: BUFFER, rows (n, width). FILLED: of a gather's buffer, what every thread knows
    (n_threads,): whether it holds the rows of all batches, those read in place too. APART: whether
    the rows that each batch's gather reads differ, and those of all at once; nothing where one
    thread runs alone.
    Of the layout: PULL, what rows pull from outside (n,). INDEX: rows of the children that a gather
    reads. RUNS: where those of each batch begin if they need no copy, and of all at once.
    EDGE_START: where the edges of every row begin (n + 1,). EDGE_BOUNDS, STARTS: where those of
    every batch begin and its rows, and where the last one's end (n_batches + 1,). FIRST_ROW: where
    every batch begins among the rows of states. COUNT: how many rows a function has (1,).
    """

    PARAMETER = auto()
    TRANSPOSED = auto()
    HALF = auto()
    GRADIENT = auto()
    WRITTEN = auto()
    BUFFER = auto()
    FILLED = auto()
    APART = auto()
    PULL = auto()
    INDEX = auto()
    RUNS = auto()
    EDGE_START = auto()
    EDGE_BOUNDS = auto()
    STARTS = auto()
    FIRST_ROW = auto()
    COUNT = auto()


OF_PARAMETERS = frozenset((Kind.PARAMETER, Kind.HALF, Kind.GRADIENT, Kind.WRITTEN))


@dataclass(frozen=True, slots=True)
class Argument:
    """Names an array; equal ones have one place in the table of addresses.

    of: the name of a buffer, a parameter or a pull, or the slots of a gather. type_id: of the
    function; SHARED where it is no function's own.
    """

    kind: Kind
    of: Any = ""
    type_id: int = SHARED

    @property
    def is_of_layout(self) -> bool:
        """Whether every mini-batch has it anew: all of these are found at once."""
        return self.kind in _NUMBERS

    def number(self, fields: Fields) -> int:
        """The number of an array of the layout."""
        return _NUMBERS[self.kind](fields, self)

    def find(self, memory: Memory) -> NDArray[Any]:
        """Return the array, as it is in this mini-batch."""
        if self.is_of_layout:
            return memory.layout.array(self.number(memory.layout.fields))
        return _FIND[self.kind](memory, self)


def _find_apart(memory: Memory, one: Argument) -> NDArray[Any]:
    if one.type_id not in memory.layout or memory.parameters.n_threads == 1:
        return NOTHING
    bounds = Kind.EDGE_BOUNDS if one.of is None else Kind.STARTS
    index = Argument(Kind.INDEX, one.of, one.type_id).find(memory)
    starts = Argument(bounds, type_id=one.type_id).find(memory)
    return all_apart(index, starts, count_slots(one.of))


def _renew_transposed(memory: Memory, one: Argument) -> None:
    if memory.layout.n_of(one.type_id) >= COPIES_FROM:
        memory.parameters.transposed(one.of, up_to_date=True)


# What moves when memory grows, and else stays; APART is another array for every mini-batch.
_FIND: dict[Kind, Callable[[Memory, Argument], NDArray[Any]]] = {
    Kind.BUFFER: lambda memory, one: memory.buffers[one.type_id, one.of],
    Kind.PARAMETER: lambda memory, one: memory.parameters.values[one.of],
    Kind.TRANSPOSED: lambda memory, one: memory.parameters.transposed(one.of, up_to_date=False),
    Kind.HALF: lambda memory, one: memory.parameters.half(one.of),
    Kind.GRADIENT: lambda memory, one: memory.parameters.gradient(one.of),
    Kind.WRITTEN: lambda memory, one: memory.parameters.written(one.of),
    Kind.FILLED: lambda memory, one: memory.filled(one.type_id, one.of),
    Kind.APART: _find_apart,
}
# What is brought up to date for every mini-batch, where it is.
_RENEW: dict[Kind, Callable[[Memory, Argument], object]] = {
    Kind.TRANSPOSED: _renew_transposed,
    Kind.HALF: _FIND[Kind.HALF],
}
_NUMBERS: dict[Kind, Callable[[Fields, Argument], int]] = {
    Kind.PULL: lambda fields, one: fields.of_pull(one.type_id, one.of),
    Kind.INDEX: lambda fields, one: fields.of_gather(one.type_id, one.of, parts.INDEX),
    Kind.RUNS: lambda fields, one: fields.of_gather(one.type_id, one.of, parts.RUNS),
    Kind.EDGE_START: lambda fields, one: fields.of_gather(one.type_id, None, parts.EDGE_START),
    Kind.EDGE_BOUNDS: lambda fields, one: fields.of_gather(one.type_id, None, parts.EDGE_BOUNDS),
    Kind.STARTS: lambda fields, one: fields.of_function(one.type_id, parts.STARTS),
    Kind.FIRST_ROW: lambda fields, one: fields.of_function(one.type_id, parts.FIRST_ROW),
    Kind.COUNT: lambda fields, one: fields.of_function(one.type_id, parts.ROWS),
}


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
        self._moving: list[tuple[int, Argument]] = []
        self._renewed: list[Argument] = []
        self._of_layout: list[tuple[int, Argument]] = []
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
            if argument.is_of_layout:
                self._of_layout.append((k, argument))
            elif argument.kind is Kind.APART and self._has_threads:
                self._moving.append((k, argument))
            elif argument.kind in _RENEW:
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
            _RENEW[renewed.kind](memory, renewed)
        self._found_for = n_grown, n_arranged

    def keep_up(self) -> None:
        """Find what moves when memory grows, and else stays."""
        n_grown = self.memory.n_grown
        if self._found_for[0] != n_grown:
            for k, argument in enumerate(self._arguments):
                if not argument.is_of_layout:
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
