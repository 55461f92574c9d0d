"""Chains of equal types: how many vertices of one type follow each other on a path.

Only *chained* types, those that a path meets twice, are counted: of any other type the lower bound
asks for one batch, whatever the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.machine.compiled import compiled, compiled_with
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
from harness.policies.parts.ready import Flags, Ids, Ints
from harness.values.graph import UNBATCHABLE


class Chains(NamedTuple):
    """The chained types and how far every vertex is on the chains of each.

    A vertex is on level l of a type if at most l vertices of that type are on a path from a source
    to it, itself included. Levels end at MOST: a path may be longer, and only what is above that
    is not told apart.

    chained (k,): in increasing order.
    short (n, columns): levels of the i-th chained type in column i, and 0 in columns that are there
        to fill a row.
    long (n, columns): the same, where short has too few bits for them, and else no rows: most
        graphs are as fast again with half the memory.
    """

    chained: Ints
    short: ShortRows
    long: Rows


@compiled
def levels_of(types: Ints, arg_start: Ints, args: Ints, n_types: int, chained: Ints) -> tuple[ShortRows, Rows]:
    """Find all levels."""
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


@compiled_with(constants=False, forceinline=True)
def raise_reach(reach: Rows, t: int, short: ShortRows, long: Rows, vertices: Ids | Ints) -> None:
    """Take vertices that became ready into the highest levels of their type, reach[t]."""
    if len(long):
        _raise(reach, t, long, vertices)
    else:
        _raise(reach, t, short, vertices)


@compiled_with(constants=False, forceinline=True)
def _raise(reach: Rows, t: int, level: Rows | ShortRows, vertices: Ids | Ints) -> None:
    for column in range(0, reach.shape[1], N_LANES):
        highest = every(level, 0)
        for v in vertices:
            highest = higher(highest, load(level, v, column))
        store(reach, t, column, higher(load(reach, t, column), wide(highest)))


@compiled
def _set_levels(
    types: Ints, arg_start: Ints, args: Ints, own: ShortRows | Rows, level: ShortRows | Rows
) -> int:
    """Set the levels of all vertices; return the highest one.

    own (n_types, columns): what a vertex of each type adds to the levels of those before it.
    """
    top = np.zeros((1, N_LANES), level.dtype)
    for column in range(0, level.shape[1], N_LANES):
        highest = load(top, 0, 0)
        for v in range(len(types)):
            reached = every(level, 0)
            for edge in range(arg_start[v], arg_start[v + 1]):
                reached = higher(reached, load(level, args[edge], column))
            reached = plus(reached, load(own, types[v], column))
            store(level, v, column, reached)
            highest = higher(highest, reached)
        store(top, 0, 0, highest)
    return int(top.max())
