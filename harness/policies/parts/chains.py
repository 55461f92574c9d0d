"""Chains of equal types: how many vertices of one type follow each other on a path.

Only *chained* types, those that a path meets twice, are counted: of any other type the lower bound
asks for one batch, whatever the order.
"""

from __future__ import annotations

import numpy as np

from harness.machine.compiled import compiled
from harness.machine.lanes import N_LANES, Rows, every, higher, load, plus, store
from harness.policies.parts.ready import Ints
from harness.values.graph import UNBATCHABLE

WORD = 64


@compiled
def chains_of(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> tuple[Ints, Rows]:
    """Return the chained types (k,), in increasing order, and the levels (n, columns) of all
    vertices: of the i-th chained type in column i, and 0 in columns that are there to fill a row.

    A vertex is on level l of a type if at most l vertices of that type are on a path from a source
    to it, itself included. Levels end at MOST: a path may be longer, and only what is above that
    is not told apart.
    """
    chained = _chained_types(types, arg_start, args, n_types)
    n_columns = -(-len(chained) // N_LANES) * N_LANES
    own = np.zeros((n_types, n_columns), np.uint16)
    for k in range(len(chained)):
        own[chained[k], k] = 1
    level = np.empty((len(types), n_columns), np.uint16)
    for v in range(len(types)):
        for column in range(0, n_columns, N_LANES):
            highest = every(0)
            for edge in range(arg_start[v], arg_start[v + 1]):
                highest = higher(highest, load(level, args[edge], column))
            store(level, v, column, plus(highest, load(own, types[v], column)))
    return chained, level


@compiled
def _chained_types(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> Ints:
    """Return the types that a path meets twice; those above a vertex are bits of a word."""
    chained = np.empty(n_types, np.int32)
    n_chained = 0
    met = np.empty(len(types), np.uint64)
    for low in range(0, n_types, WORD):
        twice = np.uint64(0)
        for v in range(len(types)):
            above = np.uint64(0)
            for edge in range(arg_start[v], arg_start[v + 1]):
                above |= met[args[edge]]
            if low <= types[v] < low + WORD:
                bit = np.uint64(1) << np.uint64(types[v] - low)
                twice |= above & bit
                above |= bit
            met[v] = above
        for t in range(max(low, UNBATCHABLE + 1), min(low + WORD, n_types)):
            if (twice >> np.uint64(t - low)) & np.uint64(1):
                chained[n_chained] = t
                n_chained += 1
    return chained[:n_chained].copy()
