"""Ready lists for a schedule that is made from the outputs back: as those of ready.py, and less.

A vertex is ready once all its users are placed: the arguments that a graph stores are the very
lists that such a run walks, so that nothing has to be turned round. No type follows another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.machine.compiled import compiled
from harness.policies.parts.ready import Ids, Ints


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
def start_placing(types: Ints, args: Ints, n_types: int) -> Placing:
    """Return the state before the last batch."""
    n = len(types)
    n_users = np.zeros(n, np.int32)
    for arg in args:
        n_users[arg] += 1
    first = np.zeros(n_types + 1, np.int32)
    for v in range(n):
        first[types[v] + 1] += 1
    for t in range(n_types):
        first[t + 1] += first[t]
    head, tail = first[:n_types].copy(), first[:n_types].copy()
    queue = np.empty(n, np.uint32)
    for v in range(n):
        if n_users[v] == 0:
            queue[tail[types[v]]] = v
            tail[types[v]] += 1
    return Placing(
        n_users, queue, first, head, tail,
        np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32),
    )  # fmt: skip


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
