"""Chains of equal types: how many vertices of one type follow each other on a path.

Only *chained* types, those that a path meets twice, are counted: of any other type the lower bound
asks for one batch, whatever the order.
"""

from __future__ import annotations

import numpy as np

from harness.machine.compiled import compiled
from harness.policies.parts.ready import Ints
from harness.values.graph import UNBATCHABLE

WORD = 64


@compiled
def chains_of(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> tuple[Ints, Ints]:
    """Return the chained types (k,), in increasing order, and the levels (n, k) of all vertices.

    A vertex is on level l of a type if at most l vertices of that type are on a path from a source
    to it, itself included.
    """
    chained = _chained_types(types, arg_start, args, n_types)
    column = np.full(n_types, np.int32(-1))
    for k in range(len(chained)):
        column[chained[k]] = k
    level = np.zeros((len(types), len(chained)), np.int32)
    for v in range(len(types)):
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            for k in range(len(chained)):
                level[v, k] = max(level[v, k], level[arg, k])
        own = column[types[v]]
        if own >= 0:
            level[v, own] += 1
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
