"""Instructions of a batch as data: kernels, their operands, and a table of array addresses.

Finding an array and its address takes Python a microsecond, and a mini-batch of one sentence has a
hundred arguments in five stages. Most arrays do not move, and one compiled call fills in the
addresses of the layout's arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import Compiled, compiled, get_address
from dynbatch.harness.compiler.pointers import put_word, read_word
from dynbatch.harness.engine.backends.compiled.memory import Memory
from dynbatch.harness.engine.cpu_kernels.context import Register, Taken, mark_distinct_runs
from dynbatch.harness.engine.cpu_kernels.elementwise import Group
from dynbatch.harness.engine.cpu_kernels.team import Table
from dynbatch.harness.engine.lowering.plan import SHARED, count_slots
from dynbatch.harness.engine.rows import fields as parts
from dynbatch.harness.engine.rows.fields import Fields, Index
from dynbatch.harness.vertex.operators import EDGE

NOTHING: Index = np.zeros(0, dtype=np.int64)


class ArgumentKind(StrEnum):
    """Kind of the array that an argument refers to.

    Arrays of parameters:
        PARAMETER: The parameter in its own shape.
        COPY: A copy of W or W^T, which is current if its function has a suitable number of rows.
        GRADIENT: The gradient, which is valid only after it was written.
        WRITTEN: (n_threads,), flags that the gradient was written in this mini-batch.

    Arrays of functions:
        BUFFER: Rows (n, width).
        FILLED: (n_threads,), flags of a gather's buffer: it holds the rows of all batches,
            including those that are read in place.
        APART: For the gather of each batch, and for all together: whether the rows that it reads
            are all different; empty if there is one thread.

    Arrays of the layout:
        PULL: (n,), numbers that rows pull.
        INDEX: Rows of the children that a gather reads.
        RUNS: For each batch, and for all together: the first of these rows if they need no copy.
        EDGE_START: (n + 1,), the first edge of every row.
        EDGE_BOUNDS: (n_batches + 1,), boundaries of the batches' edges.
        STARTS: (n_batches + 1,), boundaries of the batches' rows.
        FIRST_ROW: The first row of every batch among the rows of states.
        COUNT: (1,), the number of a function's rows.
    """

    PARAMETER = auto()
    COPY = auto()
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


class CopyOf(NamedTuple):
    """A copy of a parameter W, made once per update.

    Attributes:
        is_transposed: Whether it is of W^T.
        is_packed: Whether it is packed for the engine's own kernels.
        rows_from: The least number of a function's rows for which it is kept current and used.
        rows_up_to: The largest.
    """

    parameter: str
    is_transposed: bool
    is_packed: bool
    rows_from: int
    rows_up_to: int


@dataclass(frozen=True, slots=True)
class Argument:
    """Identity of an array; equal arguments share one entry of the table of addresses.

    Attributes:
        of: The name of a buffer, a parameter or a pull, the slots of a gather, or CopyOf.
        type_id: The function; SHARED if the array belongs to no single function.
    """

    kind: ArgumentKind
    of: Any = ""
    type_id: int = SHARED

    @property
    def is_of_layout(self) -> bool:
        """True if every mini-batch has a new one; all of these are looked up in one call."""
        return self.kind in _NUMBERS

    def number(self, fields: Fields) -> int:
        """Return the number of an array of the layout."""
        return _NUMBERS[self.kind](fields, self)

    def find(self, memory: Memory) -> NDArray[Any]:
        """Return the array in its state of this mini-batch."""
        if self.is_of_layout:
            return memory.layout.select_array(self.number(memory.layout.fields))
        return _FIND[self.kind](memory, self)


def _find_apart(memory: Memory, argument: Argument) -> NDArray[Any]:
    if argument.type_id not in memory.layout or memory.parameters.n_threads == 1:
        return NOTHING
    bounds = ArgumentKind.EDGE_BOUNDS if argument.of is None else ArgumentKind.STARTS
    index = Argument(ArgumentKind.INDEX, argument.of, argument.type_id).find(memory)
    starts = Argument(bounds, type_id=argument.type_id).find(memory)
    return mark_distinct_runs(index, starts, count_slots(argument.of))


def _refresh_copy(memory: Memory, argument: Argument) -> None:
    n_rows = memory.layout.count_rows(argument.type_id)
    if argument.of.rows_from <= n_rows <= argument.of.rows_up_to:
        _provide_copy(memory, argument.of, up_to_date=True)


def _provide_copy(memory: Memory, copy: CopyOf, *, up_to_date: bool) -> NDArray[Any]:
    if not copy.is_packed:
        return memory.parameters.provide_transposed(copy.parameter, up_to_date=up_to_date)
    return memory.parameters.provide_packed(
        copy.parameter, copy.is_transposed, up_to_date=up_to_date
    )


def _find_copy(memory: Memory, argument: Argument) -> NDArray[Any]:
    """Return a copy, which is current if no step has changed the parameters yet."""
    return _provide_copy(memory, argument.of, up_to_date=not memory.parameters.was_updated)


# Arrays that move only when memory grows; except APART, which is new in every mini-batch.
_FIND: dict[ArgumentKind, Callable[[Memory, Argument], NDArray[Any]]] = {
    ArgumentKind.BUFFER: lambda memory, key: memory.buffers[key.type_id, key.of],
    ArgumentKind.PARAMETER: lambda memory, key: memory.parameters.values[key.of],
    ArgumentKind.COPY: _find_copy,
    ArgumentKind.GRADIENT: lambda memory, key: memory.parameters.provide_gradient(key.of),
    ArgumentKind.WRITTEN: lambda memory, key: memory.parameters.provide_written_flags(key.of),
    ArgumentKind.FILLED: lambda memory, key: memory.provide_filled_flags(key.type_id, key.of),
    ArgumentKind.APART: _find_apart,
}
_NUMBERS: dict[ArgumentKind, Callable[[Fields, Argument], int]] = {
    ArgumentKind.PULL: lambda fields, key: fields.index_pull_array(key.type_id, key.of),
    ArgumentKind.INDEX: lambda fields, key: fields.index_gather_array(
        key.type_id, key.of, parts.INDEX
    ),
    ArgumentKind.RUNS: lambda fields, key: fields.index_gather_array(
        key.type_id, key.of, parts.RUNS
    ),
    ArgumentKind.EDGE_START: lambda fields, key: fields.index_gather_array(
        key.type_id, None, parts.EDGE_START
    ),
    ArgumentKind.EDGE_BOUNDS: lambda fields, key: fields.index_gather_array(
        key.type_id, None, parts.EDGE_BOUNDS
    ),
    ArgumentKind.STARTS: lambda fields, key: fields.index_function_array(key.type_id, parts.STARTS),
    ArgumentKind.FIRST_ROW: lambda fields, key: fields.index_function_array(
        key.type_id, parts.FIRST_ROW
    ),
    ArgumentKind.COUNT: lambda fields, key: fields.index_function_array(key.type_id, parts.ROWS),
}


_PLACE = struct.Struct("2q")


class AddressTable:
    """Table of the address and the number of rows of every argument."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._has_threads = memory.parameters.n_threads > 1
        self._arguments: list[Argument] = []
        self._numbers_of: dict[Argument, int] = {}
        self._take_table(np.zeros((0, 2), dtype=np.int64))
        self._kept: dict[int, NDArray[Any]] = {}  # references that keep arrays alive
        self._moving: list[tuple[int, Argument]] = []
        self._renewed: list[Argument] = []
        self._of_layout: list[tuple[int, Argument]] = []
        self._numbers = np.zeros((0, 2), dtype=np.int64)  # entry, array of the layout
        self._fields: Fields | None = None
        self._found_for = (-1, -1)

    def _take_table(self, places: Table) -> None:
        self.places, self.address = places, get_address(places)

    def place_of(self, argument: Argument) -> int:
        """Return the index of an argument in the table, and add an entry if there is none."""
        k = self._numbers_of.setdefault(argument, len(self._arguments))
        if k == len(self._arguments):
            self._arguments.append(argument)
            if argument.is_of_layout:
                self._of_layout.append((k, argument))
            elif argument.kind is ArgumentKind.APART and self._has_threads:
                self._moving.append((k, argument))
            elif argument.kind is ArgumentKind.COPY:
                self._renewed.append(argument)
            if k >= len(self.places):
                self._take_table(np.zeros((2 * k + 64, 2), dtype=np.int64))
            self._fields, self._found_for = None, (-1, -1)
        return k

    def update(self) -> None:
        """Update the addresses of arrays that may have moved."""
        memory = self.memory
        n_grown, n_arranged = memory.n_grown, memory.n_arranged
        if self._found_for == (n_grown, n_arranged):
            return
        self.keep_up()
        layout = memory.layout
        if layout.fields is not self._fields:
            self._fields = layout.fields
            self._numbers = self.list_layout_arrays(layout.fields)
            self._numbers_address = get_address(self._numbers)
        put_parts(
            self.address, self._numbers_address, len(self._numbers), get_address(layout.numbers),
            get_address(layout.bounds),
        )  # fmt: skip
        for k, moving in self._moving:
            array = self._kept[k] = moving.find(memory)
            self._put(k, array)
        for renewed in self._renewed:
            _refresh_copy(memory, renewed)
        self._found_for = n_grown, n_arranged

    def keep_up(self) -> None:
        """Update the addresses of arrays that move only when memory grows."""
        n_grown = self.memory.n_grown
        if self._found_for[0] != n_grown:
            for k, argument in enumerate(self._arguments):
                if not argument.is_of_layout:
                    self._put(k, argument.find(self.memory))
            self._found_for = n_grown, -1

    def _put(self, k: int, array: NDArray[Any]) -> None:
        _PLACE.pack_into(self.places.data, _PLACE.size * k, get_address(array), len(array))

    def list_layout_arrays(self, fields: Fields) -> NDArray[np.int64]:
        """Return (n, 2): the index of an entry, and the number of its array in the layout."""
        numbers = [(k, argument.number(fields)) for k, argument in self._of_layout]
        return np.array(numbers, dtype=np.int64).reshape(-1, 2)

    @property
    def is_steady(self) -> bool:
        """True if only arrays of the layout change from one mini-batch to the next."""
        changes = self.memory.parameters.was_updated
        return not self._moving and not (self._renewed and changes)


@compiled
def put_parts(places: int, numbers: int, n: int, array: int, bounds: int) -> None:
    """Write the addresses and lengths of parts of an int64 array into the table.

    Args:
        numbers: (n, 2), the index of the entry, and the number of the part.
        bounds: (n_parts, 2), the start and length of each part.
    """
    for k in range(n):
        entry, part = read_word(numbers, 2 * k), read_word(numbers, 2 * k + 1)
        put_word(places, 2 * entry, array + 8 * read_word(bounds, 2 * part))
        put_word(places, 2 * entry + 1, read_word(bounds, 2 * part + 1))


INDEX_BYTES = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Children's states that are read in place, in batches whose children are consecutive.

    Attributes:
        runs: For each batch, the first row that it reads, or -1.
        pitch: Bytes from one state to the next.
        at: The register with the row in the batch.
    """

    runs: Argument
    states: Argument
    pitch: int
    at: Register


@dataclass(frozen=True, slots=True)
class Operand:
    """Rows of an array: the first row, the bytes between rows, and the bytes to the first column.

    Attributes:
        width: Bytes of a row that are read or written, for checks; 0: unknown.
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

    Attributes:
        count: The register with the number of rows.
        unless: Runs of a gather; the instruction is skipped for batches whose children are
            consecutive.
        bytes_per_row: Bytes that are copied per row.
        bytes_unless: Runs of a gather; bytes are not counted for batches whose children are
            consecutive.
        apart: For each list of children: whether no two vertices of a batch have a child in common.
        moves: The kernel only moves data.
        whole_only: The instruction is for stages that take all rows in one call.
        counts_itself: The kernel counts its launches itself: one, several or none.
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
    counts_itself: bool = False

    @property
    def name(self) -> str:
        """Readable name of the kernel."""
        if isinstance(self.kernel, Compiled):
            return self.kernel.__name__
        return "+".join(operation.operator for operation in self.kernel.operations)


def select_count_register(domain: str) -> Register:
    """Return the register with the number of a domain's rows."""
    return Register.N_EDGES if domain == EDGE else Register.N
