"""The machine that runs programs: a stage's batches, each by the steps of its vertex function.

A program is an array of int64 (program.py writes it, and says what the words are). For each batch
the machine sets a few registers: where the batch's rows begin, and how many there are. A step finds
its operands by these registers in the table of places, and calls its kernel with them.
"""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.compiler.pointers import add_to_word, call, count_cycles, half_word, put_word, word
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.context import (
    AT,
    BATCH,
    BYTES_COPIED,
    EDGE_AT,
    EDGE_START,
    LAUNCHES,
    MOVING_TICKS,
    N_EDGES,
    N_THREADS,
    OPERANDS,
    PLACES,
    REGISTERS,
    ROWS,
    START,
    STATE_ROW,
    TALLY,
    THREAD,
    N,
    share,
)
from harness.engine.cpu_kernels.team import meet

# A program: the first function's id, how many there are, a head of each, then steps.
FIRST_FUNCTION, N_FUNCTIONS, HEADS = range(3)
BEGIN, END, STARTS, FIRST_ROW, EDGES = range(5)
N_OF_HEAD = 5
# A step: its length, its kernel, which rows a thread takes, the register with their number, places
# of runs (or -1): skipped where the batch has a run, and no bytes counted where it has one; bytes
# that a row moves, flags, and how many operands and lists of `apart` follow; then constants.
LENGTH, KERNEL, ROWS_TAKEN, COUNT, UNLESS_RUN, BYTES_UNLESS_RUN, N_BYTES, FLAGS = range(8)
N_OPERANDS, N_APART = 8, 9
N_OF_STEP = 10
SHARE, UNLESS_APART, ALL = range(3)
MOVES, WHOLE_ONLY, MEETS, COUNTS_ITSELF = 1, 2, 4, 8
# An operand: its place, the register with its row, bytes between rows, bytes to its first column;
# of rows that are read in place where the batch has a run: places of runs (else -1) and of states,
# bytes between states, and the register with the row in the batch.
PLACE, REGISTER, PITCH, OFFSET, RUNS, STATES, STATE_PITCH, ROW_IN_BATCH = range(8)
N_OF_OPERAND = 8


@compiled
def run_program(context: int, program: int, batches: int, n_batches: int) -> None:
    """Run a stage for batches (type id, position), position < 0: for all rows at once."""
    for i in range(n_batches):
        function = half_word(batches, 2 * i) - word(program, FIRST_FUNCTION)
        if 0 <= function < word(program, N_FUNCTIONS):
            head = program + 8 * (HEADS + N_OF_HEAD * function)
            if word(head, BEGIN) < word(head, END):
                _run_batch(context, program, head, half_word(batches, 2 * i + 1))
        if word(context, N_THREADS) > 1:
            meet(context)


@helper
def _run_batch(context: int, program: int, head: int, position: int) -> None:
    places, r = word(context, PLACES), word(context, REGISTERS)
    starts, first_row = word(places, 2 * word(head, STARTS)), 2 * word(head, FIRST_ROW)
    is_whole = position < 0
    batch = word(places, first_row + 1) if is_whole else position
    begin = 0 if is_whole else word(starts, batch)
    n = word(starts, batch if is_whole else batch + 1) - begin
    state_row = word(word(places, first_row), 0 if is_whole else batch)
    edges = word(places, 2 * word(head, EDGES)) if word(head, EDGES) >= 0 else 0
    put_word(r, BATCH, batch)
    thread, n_threads = word(context, THREAD), word(context, N_THREADS)
    own_at, own_n = share(n, ROWS, thread, n_threads)
    _take(r, begin, state_row, own_at, own_n, edges)
    taken = SHARE
    at, end = program + 8 * word(head, BEGIN), program + 8 * word(head, END)
    while at < end:
        if n_threads > 1:
            wanted = _wanted(places, at, batch)
            if wanted != taken:
                meet(context)
                taken = wanted
                if taken == SHARE:
                    _take(r, begin, state_row, own_at, own_n, edges)
                else:
                    n_all = n if taken == ALL or thread == 0 else 0
                    _take(r, begin, state_row, 0, n_all, edges)
        _run_step(context, places, r, at, batch, is_whole)
        at += 8 * word(at, LENGTH)


@helper
def _take(r: int, begin: int, state_row: int, at: int, n: int, edges: int) -> None:
    """Set the registers to rows of the batch."""
    put_word(r, AT, at)
    put_word(r, START, begin + at)
    put_word(r, STATE_ROW, state_row + at)
    put_word(r, N, n)
    if edges != 0:
        edge_start = word(edges, begin + at)
        put_word(r, EDGE_START, edge_start)
        put_word(r, EDGE_AT, edge_start - word(edges, begin))
        put_word(r, N_EDGES, word(edges, begin + at + n) - edge_start)


@helper
def _wanted(places: int, step: int, batch: int) -> int:
    """Return which rows a thread takes in a step: all where vertices share a row to be added to."""
    wanted = word(step, ROWS_TAKEN)
    if wanted != UNLESS_APART:
        return wanted
    n = word(step, N_APART)
    is_apart = n > 0
    first = N_OF_STEP + N_OF_OPERAND * word(step, N_OPERANDS)
    for k in range(n):
        is_apart &= word(word(places, 2 * word(step, first + k)), batch) != 0
    return SHARE if is_apart else UNLESS_APART


@helper
def _run_step(context: int, places: int, r: int, step: int, batch: int, is_whole: bool) -> None:
    tally, flags, n = word(context, TALLY), word(step, FLAGS), word(r, word(step, COUNT))
    if _has_run(places, word(step, UNLESS_RUN), batch) or (flags & WHOLE_ONLY and not is_whole):
        return
    n_operands, operands = word(step, N_OPERANDS), word(context, OPERANDS)
    for k in range(n_operands):
        _put_operand(places, r, step + 8 * (N_OF_STEP + N_OF_OPERAND * k), operands + 16 * k, batch)
    began = count_cycles() if flags & MOVES else 0
    constants = step + 8 * (N_OF_STEP + N_OF_OPERAND * n_operands + word(step, N_APART))
    call(word(step, KERNEL), (context, operands, constants, n))
    if not flags & COUNTS_ITSELF:
        add_to_word(tally, LAUNCHES, 1)
    if not _has_run(places, word(step, BYTES_UNLESS_RUN), batch):
        add_to_word(tally, BYTES_COPIED, n * word(step, N_BYTES))
    if flags & MOVES:
        add_to_word(tally, MOVING_TICKS, count_cycles() - began)
    if flags & MEETS and word(context, N_THREADS) > 1:
        meet(context)


@helper
def _has_run(places: int, runs: int, batch: int) -> bool:
    """Whether the children of a batch lie one behind the other; runs: a place, or -1."""
    return runs >= 0 and word(word(places, 2 * runs), batch) >= 0


@helper
def _put_operand(places: int, r: int, operand: int, to: int, batch: int) -> None:
    """Write where the first row of an operand is, and the bytes between its rows."""
    pitch = word(operand, PITCH)
    begin = word(places, 2 * word(operand, PLACE)) + pitch * word(r, word(operand, REGISTER))
    runs = word(operand, RUNS)
    if runs >= 0:
        first = word(word(places, 2 * runs), batch)
        if first >= 0:
            begin = word(places, 2 * word(operand, STATES)) + first * word(operand, STATE_PITCH)
            begin += pitch * word(r, word(operand, ROW_IN_BATCH))
    put_word(to, 0, begin + word(operand, OFFSET))
    put_word(to, 1, pitch)
