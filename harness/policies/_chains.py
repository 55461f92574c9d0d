"""Chains of equal types: how many vertices of one type follow each other on a path.

Only *chained* types, those that a path meets twice, are counted: of any other type the lower bound
asks for one batch, whatever the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.graph import UNBATCHABLE
from harness.policies._compiled import compiled
from harness.policies._ready import Ints

WORD = 64


class Chains(NamedTuple):
    """Chains of a graph; level l of a type holds what has l vertices of the type on a path to it.

    chained (k,): the chained types, in increasing order.
    column (n_types,): the place of each type in `chained`, -1 for others.
    level (n, k): level of each vertex in each chained type: the most vertices of that type on a
        path from a source to the vertex, itself included.
    first (k + 1,): level l of the i-th chained type is row first[i] + l; the row of its longest
        chain is first[i + 1] - 1.
    """

    chained: Ints
    column: Ints
    level: Ints
    first: Ints


@compiled
def chains_of(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> Chains:
    """Return the chains of a graph."""
    chained = _chained_types(types, arg_start, args, n_types)
    column = np.full(n_types, np.int32(-1))
    for k in range(len(chained)):
        column[chained[k]] = k
    level = np.zeros((len(types), len(chained)), np.int32)
    longest = np.zeros(len(chained), np.int32)
    for v in range(len(types)):
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            for k in range(len(chained)):
                level[v, k] = max(level[v, k], level[arg, k])
        own = column[types[v]]
        if own >= 0:
            level[v, own] += 1
            longest[own] = max(longest[own], level[v, own])
    first = np.zeros(len(chained) + 1, np.int32)
    for k in range(len(chained)):
        first[k + 1] = first[k] + longest[k] + 1
    return Chains(chained, column, level, first)


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
