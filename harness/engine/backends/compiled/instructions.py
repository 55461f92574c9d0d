"""What a batch of one vertex function runs, as data: kernels, and where their operands are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from harness.compiler.compiled import Compiled
from harness.engine.backends.compiled import interpreter
from harness.engine.backends.compiled.arguments import Argument
from harness.engine.cpu_kernels import context
from harness.engine.cpu_kernels.elementwise import Group
from harness.vertex.operators import EDGE

FLOAT_BYTES = 4
INDEX_BYTES = 8


class Register(IntEnum):
    """What the machine knows of a batch.

    AT: the first row of a thread's share, counted from the batch's first; START: from the
    function's first; STATE_ROW: among the rows of states; N: rows of the share. The same of edges.
    BATCH: the batch's number, or how many there are where a stage takes all rows at once.
    """

    ZERO = context.ZERO
    AT = context.AT
    START = context.START
    STATE_ROW = context.STATE_ROW
    N = context.N
    EDGE_AT = context.EDGE_AT
    EDGE_START = context.EDGE_START
    N_EDGES = context.N_EDGES
    BATCH = context.BATCH
    ONE = context.ONE


class Taken(IntEnum):
    """Which rows of a batch a thread takes in a step.

    Steps that work row by row need no other thread's rows. Who adds to the rows of children does,
    where two vertices of the batch have one in common: then one thread takes all. Who sums over
    vertices takes all of them, for a part of the sum.
    """

    SHARE = interpreter.SHARE
    UNLESS_APART = interpreter.UNLESS_APART
    ALL = interpreter.ALL


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
