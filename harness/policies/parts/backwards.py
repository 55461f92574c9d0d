"""Ready lists for a schedule that is made from the outputs back: as those of ready.py, and less.

A vertex is ready once all its users are placed: the arguments that a graph stores are the very
lists that such a run walks, so that nothing has to be turned round. No type follows another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.compiler.registry import helper
from harness.values.arrays import Ints
from harness.values.graph import UNBATCHABLE


class Placing(NamedTuple):
    """State of a run; arrays, which compiled functions change in place.

    n_users (n,): users of each vertex that are not placed yet.
    queue (n,): the vertices of type t take queue[first[t]:first[t + 1]] in order of becoming ready;
        queue[head[t]:tail[t]] are ready and not placed. first (n_types + 1,).
    """

    n_users: Ints
    queue: Ints
    first: Ints
    head: Ints
    tail: Ints


@helper
def start_placing(types: Ints, n_users: Ints, n_of_type: Ints) -> Placing:
    """Return the state before the last batch.

    n_users (n,): users of each vertex. n_of_type (n_types,): vertices of each type.
    """
    n_types = len(n_of_type)
    first = np.zeros(n_types + 1, np.int32)
    for t in range(n_types):
        first[t + 1] = first[t] + n_of_type[t]
    head, tail = first[:n_types].copy(), first[:n_types].copy()
    queue = np.empty(len(types), np.int32)
    for v in range(len(types)):
        if n_users[v] == 0:
            queue[tail[types[v]]] = v
            tail[types[v]] += 1
    return Placing(n_users, queue, first, head, tail)


@helper
def place(placing: Placing, t: int, types: Ints, arg_start: Ints, args: Ints) -> int:
    """Place all ready vertices of type t, of the unbatchable one the oldest; return how many.

    Arguments that no other vertex waits for become ready.
    """
    n_users, queue, _, head, tail = placing
    begin = head[t]
    end = head[t] = begin + 1 if t == UNBATCHABLE else tail[t]
    for position in range(begin, end):
        v = queue[position]
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            n_users[arg] -= 1
            if n_users[arg] == 0:
                of_arg = types[arg]
                queue[tail[of_arg]] = arg
                tail[of_arg] += 1
    return int(end - begin)


@helper
def batch_of_placed(placing: Placing, sequence: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the batch (n,) of every vertex, counted from the first one, and types of batches.

    sequence, sizes (n_batches,): type of each batch, and how many vertices, from the last one on.
    """
    batch_of, type_of = np.empty(len(placing.queue), np.int32), np.empty_like(sequence)
    begin = placing.first[:-1].copy()
    for k in range(len(sequence)):
        t, b = sequence[k], len(sequence) - 1 - k
        type_of[b] = t
        for position in range(begin[t], begin[t] + sizes[k]):
            batch_of[placing.queue[position]] = b
        begin[t] += sizes[k]
    return batch_of, type_of
