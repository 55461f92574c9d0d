"""What a thread is told, its share of the work, and where a kernel's operands are.

All of it is words of int64. The processor's own counter tells shares of a run, never a duration.
"""

from __future__ import annotations

import platform
from enum import IntEnum

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.pointers import Pointer, count_cycles, floats_at, word
from harness.compiler.registry import helper
from harness.engine.rows.fields import Index

# Words of what a thread is told: its number, of how many, their team, what it multiplies with
# (blas.py), what it counts, the table of arrays, and room for registers and for operands.
THREAD, N_THREADS, TEAM, SIZES, LETTERS, FACTORS, TALLY, PLACES, REGISTERS, OPERANDS = range(10)
N_WORDS = 10
# What it counts: kernels run, bytes copied, and with the switch `profile` ticks of moving data.
LAUNCHES, BYTES_COPIED, MOVING_TICKS = range(3)
N_REGISTERS, MOST_OPERANDS = 16, 256  # that there is room for
N_TALLY = 3


class Register(IntEnum):
    """What the machine that runs programs knows of a batch.

    AT: the first row of a thread's share, counted from the batch's first; START: from the
    function's first; STATE_ROW: among the rows of states; N: rows of the share. The same of edges.
    BATCH: the batch's number, or how many there are where a stage takes all rows at once.
    """

    ZERO, AT, START, STATE_ROW, N, EDGE_AT, EDGE_START, N_EDGES, BATCH, ONE = range(10)


class Taken(IntEnum):
    """Which rows of a batch a thread takes in a step.

    Steps that work row by row need no other thread's rows. Who adds to the rows of children does,
    where two vertices of the batch have one in common: then one thread takes all. Who sums over
    vertices takes all of them, for a part of the sum.
    """

    SHARE, UNLESS_APART, ALL = range(3)


# As compiled code reads them.
ZERO, AT, START, STATE_ROW, N, EDGE_AT, EDGE_START, N_EDGES, BATCH, ONE = map(int, Register)
SHARE, UNLESS_APART, ALL = map(int, Taken)


@helper
def begin(operands: int, k: int) -> int:
    """Return the address at which the rows of operand k begin."""
    return word(operands, 2 * k)


@helper
def pitch(operands: int, k: int) -> int:
    """Return the bytes from one row of operand k to the next."""
    return word(operands, 2 * k + 1)


@helper
def row(operands: int, k: int, m: int) -> Pointer:
    """Return row m of operand k, as a pointer to float32."""
    return floats_at(word(operands, 2 * k) + m * word(operands, 2 * k + 1))


# Elsewhere reading it needs a privilege.
TICKS_READABLE = platform.machine() in ("x86_64", "AMD64")


@compiled
def read_ticks() -> int:
    """Return ticks since the processor started, at a constant rate."""
    return count_cycles()


# Rows of a product are multiplied eight at a time; sixteen floats are one line of the cache.
ROWS, FLOATS = 8, 16


@helper
def share(n: int, unit: int, thread: int, n_threads: int) -> tuple[int, int]:
    """Return the first of n that a thread takes, and how many: whole units but the last's."""
    each = (n + n_threads * unit - 1) // (n_threads * unit) * unit
    first = min(n, thread * each)
    return first, min(n, first + each) - first


@compiled
def all_apart(index: Index, bounds: Index, n_parts: int) -> Index:
    """Return 1 for each run where no two entries are equal, else 0; the last: of all runs at once.

    Vertices of such a run may add to the rows that it names in any order.

    bounds (n_runs + 1,): where runs begin, in parts.
    """
    apart = np.ones(len(bounds), np.int64)
    n_rows = index.max() + 1 if len(index) > 0 else 0
    last_in = np.full(n_rows, -1, np.int32)  # the run that named each row last
    for b in range(len(bounds) - 1):
        for k in range(bounds[b] * n_parts, bounds[b + 1] * n_parts):
            last = last_in[index[k]]
            if last == b:
                apart[b] = 0
            if last >= 0:
                apart[-1] = 0
            last_in[index[k]] = b
    return apart
