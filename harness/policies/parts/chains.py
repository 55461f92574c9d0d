"""Chains of equal types: how many vertices of one type follow each other on a path.

Only *chained* types, those that a path meets twice, are counted: of any other type the lower bound
asks for one batch, whatever the order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.machine.compiled import compiled, inlined
from harness.machine.lanes import (
    MOST_SHORT,
    N_LANES,
    Rows,
    ShortRows,
    every,
    higher,
    load,
    plus,
    store,
    wide,
)
from harness.policies.parts.ready import Ids, Ints
from harness.values.graph import UNBATCHABLE

WORD = 64


@compiled
def chain_levels(
    types: Ints, arg_start: Ints, args: Ints, n_types: int, chained: Ids
) -> tuple[ShortRows, Rows]:
    """Return the levels (n, columns) of all vertices: of the i-th chained type in column i, and 0
    in columns that are there to fill a row.

    A vertex is on level l of a type if at most l vertices of that type are on a path from a source
    to it, itself included. Levels of 8 bits where these are enough, for half the memory is as fast
    again; the array of 16 bits has no rows then. Its levels end at MOST: a path may be longer, and
    only what is above that is not told apart.
    """
    n_columns = -(-len(chained) // N_LANES) * N_LANES
    own = np.zeros((n_types, n_columns), np.uint8)
    for k in range(len(chained)):
        own[chained[k], k] = 1
    short = np.empty((len(types), n_columns), np.uint8)
    is_long = _set_levels(types, arg_start, args, own, short) == MOST_SHORT
    long = np.empty((len(types) if is_long else 0, n_columns), np.uint16)
    if is_long:
        _set_levels(types, arg_start, args, own.astype(np.uint16), long)
    return short, long


@inlined
def raise_reach(reach: Rows, t: int, short: ShortRows, long: Rows, vertices: Ids | Ints) -> None:
    """Take vertices that became ready into the highest levels of their type, reach[t]."""
    if len(long):
        _raise(reach, t, long, vertices)
    else:
        _raise(reach, t, short, vertices)


@inlined
def _raise(reach: Rows, t: int, level: Rows | ShortRows, vertices: Ids | Ints) -> None:
    last = reach.shape[1] - N_LANES
    for left in range(0, reach.shape[1], 2 * N_LANES):
        right = min(left + N_LANES, last)
        of_left, of_right = every(level, 0), every(level, 0)
        for v in vertices:
            of_left = higher(of_left, load(level, v, left))
            of_right = higher(of_right, load(level, v, right))
        store(reach, t, left, higher(load(reach, t, left), wide(of_left)))
        store(reach, t, right, higher(load(reach, t, right), wide(of_right)))


@compiled
def _set_levels(
    types: Ints, arg_start: Ints, args: Ints, own: ShortRows | Rows, level: ShortRows | Rows
) -> int:
    """Set the levels of all vertices; return the highest one.

    Two vectors at a time, the last one twice if their number is odd: that takes no longer, since
    what comes of one vertex is waited for by the next one.

    own (n_types, columns): what a vertex of each type adds to the levels of those before it.
    """
    top = np.zeros((1, N_LANES), level.dtype)
    last = level.shape[1] - N_LANES
    for left in range(0, level.shape[1], 2 * N_LANES):
        right = min(left + N_LANES, last)
        highest = load(top, 0, 0)
        for v in range(len(types)):
            of_left, of_right = every(level, 0), every(level, 0)
            for edge in range(arg_start[v], arg_start[v + 1]):
                of_left = higher(of_left, load(level, args[edge], left))
                of_right = higher(of_right, load(level, args[edge], right))
            of_left = plus(of_left, load(own, types[v], left))
            of_right = plus(of_right, load(own, types[v], right))
            store(level, v, left, of_left)
            store(level, v, right, of_right)
            highest = higher(highest, higher(of_left, of_right))
        store(top, 0, 0, highest)
    return int(top.max())


@compiled
def met_twice(
    types: Ints, arg_start: Ints, args: Ints, low: int, met: NDArray[np.uint64]
) -> np.uint64:
    """Return which of the types from `low` on a path meets twice, as bits; met (n,): scratch."""
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
    return twice


@compiled
def append_types(found: Ids, n: int, bits: np.uint64, low: int) -> int:
    """Append the types, from `low` on, whose bits are set; return how many there are now.

    The unbatchable type is left out, whatever its bit.
    """
    for place in range(WORD):
        if (bits >> np.uint64(place)) & np.uint64(1) and low + place != UNBATCHABLE:
            found[n] = low + place
            n += 1
    return n
