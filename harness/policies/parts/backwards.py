"""Ready lists for a schedule that is made from the outputs backwards.

They are simpler than those of ready.py. A vertex is ready once all its users are placed, so such a
run follows the arguments that a graph stores, and no edge has to be reversed. No type follows
another here: a vertex of a type that does (Graph.follows) is executed right after its block. A
schedule of blocks becomes one of the whole graph when `insert_followers` inserts the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.policies.parts.ready import find_followers, order_used_batches
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE


class Placing(NamedTuple):
    """State of a run; compiled functions change its arrays in place.

    Attributes:
        n_users: (n,), number of users of each vertex that are not placed yet.
        queue: (n,), vertices of type t are in queue[first[t]:first[t + 1]], in the order in which
            they become ready; those in queue[head[t]:tail[t]] are ready and not placed.
        first: (n_types + 1,).
        head, tail: (n_types,).
    """

    n_users: Ints
    queue: Ints
    first: Ints
    head: Ints
    tail: Ints


@helper
def start_placing(types: Ints, n_users: Ints, n_of_type: Ints) -> Placing:
    """Return the state before the last batch.

    Args:
        n_users: (n,), number of users of each vertex.
        n_of_type: (n_types,), number of vertices of each type.
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
    """Place all ready vertices of type t (only the oldest if unbatchable); return how many.

    Arguments that have no other unplaced user become ready.
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
def assign_batches(placing: Placing, sequence: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the batch (n,) of every vertex, counted from the first one, and types of batches.

    Args:
        sequence, sizes: (n_batches,), type and number of vertices of each batch, last batch first.
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


@helper
def find_blocks(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Ints:
    """Return (n,), the block of each vertex that follows one, and any other vertex itself."""
    block = np.empty(len(types), np.int32)
    for v in range(len(types)):
        block[v] = v if follows[types[v]] == NO_TYPE else args[arg_start[v]]
    return block


@helper
def build_block_graph(
    types: Ints, arg_start: Ints, args: Ints, block: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return types, arg_start and args of the blocks alone, in order, and their ids (old_id).

    The ids are those in the whole graph.
    """
    new_id = np.empty(len(types), np.int32)
    old_id = np.empty(len(types), np.int32)
    new_start = np.zeros(len(types) + 1, np.int32)
    new_args = np.empty(len(args), np.int32)
    n, n_edges = 0, 0
    for v in range(len(types)):
        if block[v] != v:
            continue
        new_id[v], old_id[n] = n, v
        for edge in range(arg_start[v], arg_start[v + 1]):
            new_args[n_edges] = new_id[block[args[edge]]]
            n_edges += 1
        n += 1
        new_start[n] = n_edges
    return types[old_id[:n]], new_start[: n + 1], new_args[:n_edges], old_id[:n]


@helper
def insert_followers(
    types: Ints, follows: Ints, block: Ints, old_id: Ints, block_batches: Ints, n_batches: int
) -> tuple[Ints, Ints]:
    """Return order and starts, with followers in separate batches right after their blocks.

    Args:
        block: from find_blocks.
        old_id: from build_block_graph.
        block_batches: batches of the blocks, of which some may be empty.
        n_batches: number of these batches.
    """
    slot = np.zeros(len(follows), np.int32)  # 0: the block itself, k: its k-th follower type
    n_slots = 1
    for t in find_followers(follows):
        slot[t] = n_slots
        n_slots += 1
    batch_of = np.empty(len(block), np.int32)
    for k in range(len(old_id)):
        batch_of[old_id[k]] = block_batches[k] * n_slots
    for v in range(len(block)):
        batch_of[v] = batch_of[block[v]] + slot[types[v]]
    return order_used_batches(batch_of, n_batches * n_slots)
