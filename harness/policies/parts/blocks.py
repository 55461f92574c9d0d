"""Blocks and what must follow them as one vertex: for policies that work from the outputs back.

A vertex of a type that follows another (Graph.follows) is executed right behind its block. A
schedule of blocks alone is a schedule of the whole graph, once `with_followers` puts the others in.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.registry import helper
from harness.policies.parts.ready import followers_of, in_batches
from harness.values.arrays import Ints
from harness.values.graph import NO_TYPE


@helper
def block_of(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Ints:
    """Return the block of a vertex that follows one, and every other vertex itself."""
    block = np.empty(len(types), np.int32)
    for v in range(len(types)):
        block[v] = v if follows[types[v]] == NO_TYPE else args[arg_start[v]]
    return block


@helper
def graph_of_blocks(
    types: Ints, arg_start: Ints, args: Ints, block: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return types, arg_start and args of the blocks alone, in their order, and each one's id in
    the whole graph."""
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
def of_all_vertices(of_blocks: Ints, old_id: Ints, block: Ints) -> Ints:
    """Return the batch (n,) of every vertex, a follower's being its block's, from those of blocks.

    old_id, block: of graph_of_blocks, of block_of.
    """
    batch_of = np.empty(len(block), np.int32)
    for k in range(len(old_id)):
        batch_of[old_id[k]] = of_blocks[k]
    for v in range(len(block)):
        batch_of[v] = batch_of[block[v]]
    return batch_of


@helper
def with_followers(
    types: Ints, follows: Ints, block: Ints, batch_of: Ints, n_batches: int
) -> tuple[Ints, Ints]:
    """Return order and starts, followers in their own batches right behind those of their blocks.

    batch_of (n,): changed in place; the batch of a follower is given as that of its block.
    """
    slot = np.zeros(len(follows), np.int32)  # 0: the block itself, k: its k-th follower type
    n_slots = 1
    for t in followers_of(follows):
        slot[t] = n_slots
        n_slots += 1
    index = np.zeros((n_batches, n_slots), np.int32)
    for v in range(len(types)):
        index[batch_of[v], slot[types[v]]] = 1
    n_after = 0
    for batch in range(n_batches):
        for k in range(n_slots):
            used, index[batch, k] = index[batch, k], n_after
            n_after += used
    for v in range(len(types)):
        batch_of[v] = index[batch_of[v], slot[types[v]]]
    return in_batches(batch_of, n_after)
