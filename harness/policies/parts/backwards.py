"""Ready lists for a schedule that is made from the outputs back: as those of ready.py, and less.

A vertex is ready once all its users are placed: the arguments that a graph stores are the very
lists that such a run walks, so that nothing has to be turned round. No type follows another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.machine.compiled import compiled
from harness.policies.parts.ready import Ids, Ints
from harness.values.graph import UNBATCHABLE

WORD = 64


class Placing(NamedTuple):
    """State of a run; all arrays, which compiled functions change in place.

    n_users (n,): users of each vertex that are not placed yet.
    queue (n,): the vertices of type t take queue[first[t]:first[t + 1]] in order of becoming ready;
        queue[head[t]:tail[t]] are ready and not placed. first (n_types + 1,).
    batch_type, batch_start, batch_end (n,): of every batch, from the last one on, its type and
        which part of the queue it is.
    """

    n_users: Ints
    queue: Ids
    first: Ints
    head: Ints
    tail: Ints
    batch_type: Ints
    batch_start: Ints
    batch_end: Ints


@compiled
def start_placing(
    types: Ints, arg_start: Ints, args: Ints, n_types: int
) -> tuple[Placing, Ints]:
    """Return the state before the last batch, and the chained types: those that a path meets twice.

    In one pass, since both look at every edge; what comes of one vertex is waited for by the next
    one, and meanwhile there is time to count.
    """
    n = len(types)
    n_users = np.zeros(n, np.int32)
    first = np.zeros(n_types + 1, np.int32)
    met = np.empty(n, np.uint64)  # of the first types: bits of those on paths to each vertex
    twice = np.uint64(0)
    for v in range(n):
        t = types[v]
        first[t + 1] += 1
        above = np.uint64(0)
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            n_users[arg] += 1
            above |= met[arg]
        bit = np.uint64(t < WORD) << np.uint64(t & (WORD - 1))
        twice |= above & bit
        met[v] = above | bit
    chained = np.empty(n_types, np.uint32)
    n_chained = _append_bits(chained, 0, twice, 0)
    for low in range(WORD, n_types, WORD):
        twice = _met_twice(types, arg_start, args, low, met)
        n_chained = _append_bits(chained, n_chained, twice, low)
    for t in range(n_types):
        first[t + 1] += first[t]
    head, tail = first[:n_types].copy(), first[:n_types].copy()
    queue = np.empty(n, np.uint32)
    for v in range(n):
        if n_users[v] == 0:
            queue[tail[types[v]]] = v
            tail[types[v]] += 1
    placing = Placing(
        n_users, queue, first, head, tail,
        np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32),
    )  # fmt: skip
    return placing, chained[:n_chained]


@compiled
def _met_twice(types: Ints, arg_start: Ints, args: Ints, low: int, met: NDArray[np.uint64]) -> int:
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
def _append_bits(numbers: Ints, n: int, bits: int, low: int) -> int:
    """Append the numbers, from `low` on, of bits that are set but of the unbatchable type's."""
    for place in range(WORD):
        if (bits >> np.uint64(place)) & np.uint64(1) and low + place != UNBATCHABLE:
            numbers[n] = low + place
            n += 1
    return n


@compiled
def make_ready(
    n_users: Ints, queue: Ids, tail: Ints, begin: int, end: int,
    types: Ints, arg_start: Ints, args: Ints,
) -> None:  # fmt: skip
    """Take queue[begin:end] as placed: arguments that no other vertex waits for become ready."""
    for position in range(begin, end):
        v = queue[position]
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            n_users[arg] -= 1
            if n_users[arg] == 0:
                t = types[arg]
                queue[tail[t]] = arg
                tail[t] += 1


@compiled
def batch_of_placed(placing: Placing, n_batches: int) -> tuple[Ints, Ints]:
    """Return the batch (n,) of every vertex, counted from the first one, and types of batches."""
    batch_of = np.empty(len(placing.queue), np.int32)
    for b in range(n_batches):
        for position in range(placing.batch_start[b], placing.batch_end[b]):
            batch_of[placing.queue[position]] = n_batches - 1 - b
    return batch_of, placing.batch_type[:n_batches][::-1].copy()
