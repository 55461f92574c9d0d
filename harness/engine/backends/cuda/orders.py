"""Rows put in order, compiled: by the row of a state that they read, or by the word they look up.

All orders are stable: rows with equal keys follow one another as they did, so that sums over them
are always added up alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import compiled

Words = NDArray[np.int32]
Grouped = tuple[Words, Words]  # where the rows of each key begin (n_keys + 1,), and these rows
DIGIT_BITS = 11  # of a word, in one pass: 2048 counts stay in the first cache
NONE = -1  # where an optional index has no row


@compiled
def is_any_twice(read: Words, n_rows: int) -> bool:
    """Say whether any row is read more than once."""
    seen = np.zeros(n_rows, dtype=np.bool_)
    for row in read:
        if seen[row]:
            return True
        seen[row] = True
    return False


@compiled
def row_of_each(read: Words, n_rows: int) -> Words:
    """Return for each of n_rows the last that reads it, or NONE."""
    found = np.full(n_rows, NONE, dtype=np.int32)
    for k in range(len(read)):
        found[read[k]] = k
    return found


@compiled
def group_by_row(read: Words, n_rows: int) -> Grouped:
    """Return for each of n_rows all that read it."""
    starts = np.zeros(n_rows + 1, dtype=np.int32)
    for row in read:
        starts[row + 1] += 1
    for row in range(n_rows):
        starts[row + 1] += starts[row]
    free = starts[:-1].copy()
    order = np.empty(len(read), dtype=np.int32)
    for k in range(len(read)):
        order[free[read[k]]] = k
        free[read[k]] += 1
    return starts, order


@compiled
def group_by_word(words: Words) -> tuple[Words, Words, Words]:
    """Return the different words (n,), where the rows of each begin (n + 1,), and all rows.

    Sorted digit by digit: a vocabulary may be larger than a mini-batch by far.
    """
    order = np.empty(len(words), dtype=np.int32)
    for k in range(len(words)):
        order[k] = k
    digits, counts = 1 << DIGIT_BITS, np.empty((1 << DIGIT_BITS) + 1, dtype=np.int32)
    highest = 0
    for word in words:
        highest = max(highest, word)
    shift = 0
    while highest >> shift:
        counts[:] = 0
        for word in words:
            counts[((word >> shift) & (digits - 1)) + 1] += 1
        for digit in range(digits):
            counts[digit + 1] += counts[digit]
        moved = np.empty_like(order)
        for row in order:
            digit = (words[row] >> shift) & (digits - 1)
            moved[counts[digit]] = row
            counts[digit] += 1
        order = moved
        shift += DIGIT_BITS
    found = np.empty(len(words), dtype=np.int32)
    starts = np.zeros(len(words) + 1, dtype=np.int32)
    n = 0
    for k in range(len(order)):
        if k == 0 or words[order[k]] != words[order[k - 1]]:
            found[n], starts[n] = words[order[k]], k
            n += 1
    starts[n] = len(words)
    return found[:n].copy(), starts[: n + 1].copy(), order
