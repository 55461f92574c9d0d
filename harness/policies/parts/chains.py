"""Chains of equal types: numbers of vertices of one type on a path.

Only *chained* types, which occur twice on some path, are counted: any other type needs one batch in
the lower bound, in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.lanes import (
    MAX_SHORT,
    N_LANES,
    Rows,
    ShortRows,
    add_saturated,
    broadcast_number,
    load,
    store,
    take_maximum,
    widen_lanes,
)
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import UNBATCHABLE


class TypeChains(NamedTuple):
    """Chained types (k,), in increasing order, and levels (n, columns) of all vertices.

    A vertex is on level l of a type if at most l vertices of that type are on a path from a source
    to it, itself included. Column t is that of type t; it is 0 for the unbatchable type and for
    padding. All types have a column, as the chained ones are only known after counting.

    Levels have 8 bits if these suffice, which is twice as fast; the array of 16 bits then has no
    rows. Its levels end at MOST: longer paths are possible, but the levels above it are not
    distinguished.
    """

    chained: Ints
    short: ShortRows
    long: Rows


@helper
def find_chains(
    types: Ints, arg_start: Ints, args: Ints, n_types: int
) -> tuple[Ints, Ints, TypeChains]:
    """Return the users of each vertex (n,), the vertices of each type (n_types,), and chains."""
    n_columns = -(-n_types // N_LANES) * N_LANES
    own = np.zeros((n_types, n_columns), np.uint8)
    for t in range(UNBATCHABLE + 1, n_types):
        own[t, t] = 1
    n_users, n_of_type = np.zeros(len(types), np.int32), np.zeros(n_types, np.int32)
    short = np.empty((len(types), n_columns), np.uint8)
    top = _set_levels(types, arg_start, args, own, short, n_users, n_of_type)
    is_long = top.max() == MAX_SHORT
    long = np.empty((len(types) if is_long else 0, n_columns), np.uint16)
    if is_long:
        n_users, n_of_type = np.zeros_like(n_users), np.zeros_like(n_of_type)
        _set_levels(types, arg_start, args, own.astype(np.uint16), long, n_users, n_of_type)
    chained, n_chained = np.empty(n_types, np.int32), 0
    for t in range(n_types):
        if top[t] > 1:
            chained[n_chained] = t
            n_chained += 1
    return n_users, n_of_type, TypeChains(chained[:n_chained], short, long)


@helper
def raise_reach(reach: Rows, t: int, chains: TypeChains, vertices: Ints) -> None:
    """Raise reach[t], the highest levels of type t, by vertices that became ready."""
    if len(chains.long):
        _raise(reach, t, chains.long, vertices)
    else:
        _raise(reach, t, chains.short, vertices)


@helper
def _raise(reach: Rows, t: int, level: Rows | ShortRows, vertices: Ints) -> None:
    last = reach.shape[1] - N_LANES
    for left in range(0, reach.shape[1], 2 * N_LANES):
        right = min(left + N_LANES, last)
        of_left, of_right = broadcast_number(level, 0), broadcast_number(level, 0)
        for v in vertices:
            of_left = take_maximum(of_left, load(level, v, left))
            of_right = take_maximum(of_right, load(level, v, right))
        store(reach, t, left, take_maximum(load(reach, t, left), widen_lanes(of_left)))
        store(reach, t, right, take_maximum(load(reach, t, right), widen_lanes(of_right)))


@helper
def _set_levels(
    types: Ints, arg_start: Ints, args: Ints, own: ShortRows | Rows, level: ShortRows | Rows,
    n_users: Ints, n_of_type: Ints,
) -> ShortRows | Rows:  # fmt: skip
    """Set the levels of all vertices; return the highest level of each type (columns,).

    Each vertex waits for the result of the previous one. This latency hides the work on a second
    vector, where the last one is computed twice if their number is odd, and the counting.

    Args:
        own: (n_types, columns), what a vertex of each type adds to its arguments' highest levels.
        n_users: (n,), zeros on entry; set to the number of users of each vertex.
        n_of_type: (n_types,), zeros on entry; set to the number of vertices of each type.
    """
    top = np.zeros((1, level.shape[1]), level.dtype)
    last = level.shape[1] - N_LANES
    for left in range(0, level.shape[1], 2 * N_LANES):
        right, once = min(left + N_LANES, last), 1 if left == 0 else 0
        top_left, top_right = broadcast_number(level, 0), broadcast_number(level, 0)
        for v in range(len(types)):
            t = types[v]
            n_of_type[t] += once
            of_left, of_right = broadcast_number(level, 0), broadcast_number(level, 0)
            for edge in range(arg_start[v], arg_start[v + 1]):
                arg = args[edge]
                n_users[arg] += once
                of_left = take_maximum(of_left, load(level, arg, left))
                of_right = take_maximum(of_right, load(level, arg, right))
            of_left, of_right = (
                add_saturated(of_left, load(own, t, left)),
                add_saturated(of_right, load(own, t, right)),
            )
            store(level, v, left, of_left)
            store(level, v, right, of_right)
            top_left, top_right = take_maximum(top_left, of_left), take_maximum(top_right, of_right)
        store(top, 0, left, top_left)
        store(top, 0, right, top_right)
    highest: ShortRows | Rows = top[0]
    return highest
