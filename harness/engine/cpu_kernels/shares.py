"""Which part of rows or columns one thread of a team takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.engine.cpu_kernels.addresses import INLINE
from harness.engine.rows.geometry import Index
from harness.machine.compiled import compiled_with
from harness.values.instances import IntArray

# Rows of a product are multiplied eight at a time; sixteen floats are one line of the cache.
ROWS, FLOATS = 8, 16


@compiled_with(**INLINE)
def share(n: int, unit: int, thread: int, n_threads: int) -> Any:  # pragma: no cover - compiled
    """The first of n that a thread takes, and how many: whole units, but for the last thread's."""
    each = (n + n_threads * unit - 1) // (n_threads * unit) * unit
    first = min(n, thread * each)
    return first, min(n, first + each) - first


@compiled_with(constants=False)
def all_apart(
    index: Index, bounds: Index | IntArray, n_parts: int
) -> Index:  # pragma: no cover - compiled
    """1 for each run where no two entries are equal, else 0; the last: of all runs at once.

    bounds (n_runs + 1,): where runs begin, in parts. Who adds to the rows that such a run names
    needs no order.
    """
    apart = np.ones(len(bounds), dtype=np.int64)
    highest = np.int64(-1)
    for k in range(len(index)):
        highest = max(highest, index[k])
    last_in = np.full(highest + 1, -1, dtype=np.int32)
    for b in range(len(bounds) - 1):
        for k in range(bounds[b] * n_parts, bounds[b + 1] * n_parts):
            if last_in[index[k]] == b:
                apart[b] = 0
            if last_in[index[k]] >= 0:
                apart[-1] = 0
            last_in[index[k]] = b
    return apart
