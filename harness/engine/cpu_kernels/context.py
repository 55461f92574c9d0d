"""Context of a thread, its part of the rows, and the addresses of a kernel's operands.

Everything consists of int64 words. The processor's counter is used for fractions of a run, never
for durations.
"""

from __future__ import annotations

import platform
from enum import IntEnum

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import Pointer, count_cycles, floats_at, read_word
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.rows.fields import Index

# Words of a context: number of the thread, number of threads, their team, arrays for matmuls
# (blas.py), counters, the table of arrays, and memory for registers and for operands.
THREAD, N_THREADS, TEAM, SIZES, LETTERS, FACTORS, TALLY, PLACES, REGISTERS, OPERANDS = range(10)
N_WORDS = 10
# Counters: kernels, copied bytes, and with the switch `profile` the ticks of moving data.
LAUNCHES, BYTES_COPIED, MOVING_TICKS = range(3)
N_REGISTERS, MAX_OPERANDS = 16, 256  # capacities
N_TALLY = 3


class Register(IntEnum):
    """Registers of the interpreter, which describe a batch.

    AT: the first row of the thread's part, counted from the first row of the batch. START: the
    same, counted from the first row of the function. STATE_ROW: the same among the rows of states.
    N: the number of rows of the part. EDGE_AT, EDGE_START and N_EDGES: the same for edges. BATCH:
    the number of the batch, or the number of batches if a stage takes all rows in one call.
    """

    ZERO, AT, START, STATE_ROW, N, EDGE_AT, EDGE_START, N_EDGES, BATCH = range(9)


class Taken(IntEnum):
    """Rows of a batch that a thread takes in a step.

    SHARE: a part of the rows, for steps that work row by row. UNLESS_APART: for steps that add to
    the rows of children. One thread takes all rows unless no two vertices of the batch have a child
    in common. ALL: every thread takes all rows for a part of the result, in sums over vertices.
    """

    SHARE, UNLESS_APART, ALL = range(3)


@helper
def begin(operands: int, k: int) -> int:
    """Return the address of the first row of operand k."""
    return read_word(operands, 2 * k)


@helper
def read_pitch(operands: int, k: int) -> int:
    """Return the bytes from one row of operand k to the next."""
    return read_word(operands, 2 * k + 1)


@helper
def locate_row(operands: int, k: int, m: int) -> Pointer:
    """Return row m of operand k, as a pointer to float32."""
    return floats_at(read_word(operands, 2 * k) + m * read_word(operands, 2 * k + 1))


# On other processors, reading the counter needs a privilege.
TICKS_READABLE = platform.machine() in ("x86_64", "AMD64")


@compiled
def read_ticks() -> int:
    """Return ticks since the processor started, at a constant rate."""
    return count_cycles()


# Units of work: matmuls take eight rows at a time, and a cache line has sixteen floats.
ROWS, FLOATS = 8, 16


@helper
def share(n: int, unit: int, thread: int, n_threads: int) -> tuple[int, int]:
    """Return the first of n items that a thread takes, and their number.

    All parts but the last consist of whole units.
    """
    each = (n + n_threads * unit - 1) // (n_threads * unit) * unit
    first = min(n, thread * each)
    return first, min(n, first + each) - first


@compiled
def mark_distinct_runs(index: Index, bounds: Index, n_parts: int) -> Index:
    """Return 1 for each run whose entries are all different, else 0.

    Vertices of such a run may add to the rows that it names in any order. The last entry is the
    same for all runs together.

    Args:
        bounds: (n_runs + 1,), boundaries of runs, in parts.
    """
    apart = np.ones(len(bounds), np.int64)
    n_rows = index.max() + 1 if len(index) > 0 else 0
    last_in = np.full(n_rows, -1, np.int32)  # the last run that contains each row
    for b in range(len(bounds) - 1):
        for k in range(bounds[b] * n_parts, bounds[b + 1] * n_parts):
            last = last_in[index[k]]
            if last == b:
                apart[b] = 0
            if last >= 0:
                apart[-1] = 0
            last_in[index[k]] = b
    return apart
