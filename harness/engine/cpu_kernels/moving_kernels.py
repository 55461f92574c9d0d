"""Kernels that bring rows from one place to another, or add them to rows that are there.

Operands and constants of each stand in its docstring, in order; widths are in bytes where rows are
copied, and in floats where they are added.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.pointers import add_to_word, copy_bytes, floats_at, put_word, word
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.context import N_THREADS, TALLY, THREAD, begin, pitch, row
from harness.engine.cpu_kernels.shares import ROWS, share


@compiled
def gather(context: int, operands: int, constants: int, n: int) -> None:
    """Bring children's states side by side: states, index, copies; n_slots, width."""
    n_slots, width = word(constants, 0), word(constants, 1)
    _gather_rows(begin(operands, 0), begin(operands, 1), begin(operands, 2), n, n_slots, width)


@helper
def _gather_rows(states: int, index: int, out: int, n: int, n_slots: int, width: int) -> None:
    for k in range(n * n_slots):
        copy_bytes(out + k * width, states + word(index, k) * width, width)


@compiled
def copy(context: int, operands: int, constants: int, n: int) -> None:
    """Copy columns: source, out; width."""
    width = word(constants, 0)
    for m in range(n):
        source = begin(operands, 0) + m * pitch(operands, 0)
        copy_bytes(begin(operands, 1) + m * pitch(operands, 1), source, width)


@compiled
def pack(context: int, operands: int, constants: int, n: int) -> None:
    """Copy columns of a parameter by the first thread: source, out; width, rows."""
    if word(context, THREAD) == 0:
        width, n_rows = word(constants, 0), word(constants, 1)
        for m in range(n_rows):
            source = begin(operands, 0) + m * pitch(operands, 0)
            copy_bytes(begin(operands, 1) + m * pitch(operands, 1), source, width)
        add_to_word(word(context, TALLY), 1, n_rows * width)


@compiled
def look_up(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the rows of a table that are pulled: table, rows, out; width."""
    width = word(constants, 0)
    for m in range(n):
        source = begin(operands, 0) + word(begin(operands, 1), m) * width
        copy_bytes(begin(operands, 2) + m * pitch(operands, 2), source, width)


@compiled
def spread(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the row of each vertex to all of its edges: source, where edges begin, out; width."""
    width, edges = word(constants, 0), begin(operands, 1)
    first = word(edges, 0)
    for m in range(n):
        source = begin(operands, 0) + m * pitch(operands, 0)
        for edge in range(word(edges, m) - first, word(edges, m + 1) - first):
            copy_bytes(begin(operands, 2) + edge * pitch(operands, 2), source, width)


@compiled
def fill(context: int, operands: int, constants: int, n: int) -> None:
    """Set columns to a value: out; width, the value, a whole number."""
    value = np.float32(word(constants, 1))
    for m in range(n):
        to = row(operands, 0, m)
        for j in range(word(constants, 0)):
            to[j] = value


@compiled
def leave(context: int, operands: int, constants: int, n: int) -> None:
    """Leave gradients of looked-up rows where they are: the update of a table adds them up."""


@compiled
def fill_viewed(context: int, operands: int, constants: int, n: int) -> None:
    """Copy the children's states that n batches read in place, where all rows are read at once.

    Operands: states, index, runs, where batches begin, copies, and of each thread whether it has
    done so. Constants: n_slots, width.
    """
    done, runs, bounds = begin(operands, 5), begin(operands, 2), begin(operands, 3)
    thread, n_threads = word(context, THREAD), word(context, N_THREADS)
    if word(runs, n) >= 0 or word(done, thread) != 0:
        return
    put_word(done, thread, 1)
    n_slots, width = word(constants, 0), word(constants, 1)
    for b in range(n):
        if word(runs, b) >= 0:
            at, n_rows = share(word(bounds, b + 1) - word(bounds, b), ROWS, thread, n_threads)
            first = (word(bounds, b) + at) * n_slots
            _gather_rows(
                begin(operands, 0), begin(operands, 1) + 8 * first,
                begin(operands, 4) + first * width, n_rows, n_slots, width,
            )  # fmt: skip
            add_to_word(word(context, TALLY), 0, 1)
            add_to_word(word(context, TALLY), 1, n_rows * n_slots * width)


@compiled
def scatter_add(context: int, operands: int, constants: int, n: int) -> None:
    """Add gradients to children's rows: target, index, source; n_slots, width."""
    n_slots, width = word(constants, 0), word(constants, 1)
    for m in range(n):
        index = begin(operands, 1) + m * pitch(operands, 1)
        for slot in range(n_slots):
            to = row(operands, 0, word(index, slot))
            source = begin(operands, 2) + m * pitch(operands, 2) + 4 * slot * width
            values = floats_at(source)
            for j in range(width):
                to[j] += values[j]
