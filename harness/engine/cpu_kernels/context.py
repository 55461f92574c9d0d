"""What a thread is told, and where a kernel's operands and constants are, by words of int64."""

from __future__ import annotations

from harness.compiler.pointers import Pointer, floats_at, word
from harness.compiler.registry import helper

# Words of what a thread is told: its number, of how many, their team, what it multiplies with
# (blas.py), what it counts, the table of arrays, and room for registers and for operands.
THREAD, N_THREADS, TEAM, SIZES, LETTERS, FACTORS, TALLY, PLACES, REGISTERS, OPERANDS = range(10)
N_WORDS = 10
# What it counts: kernels run, bytes copied, and with the switch `profile` ticks of moving data.
LAUNCHES, BYTES_COPIED, MOVING_TICKS = range(3)
# Registers of the machine that runs programs. AT: the first row of this thread's share, counted
# from the batch's first; START: from the function's first; STATE_ROW: among the rows of states. The
# same of edges. BATCH: the number of the batch, or how many there are where a stage takes all rows.
ZERO, AT, START, STATE_ROW, N, EDGE_AT, EDGE_START, N_EDGES, BATCH, ONE = range(10)
N_REGISTERS, MOST_OPERANDS = 16, 256  # that there is room for
N_TALLY = 3


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
