"""Which part of rows or columns one thread of a team takes."""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.engine.rows.geometry import Index

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
