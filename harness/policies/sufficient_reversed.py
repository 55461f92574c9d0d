"""Sufficient-condition heuristic on the reversed graph: batches are found from the outputs back.

Source: the released code of ED-Batch (Chen et al., ICML 2023; spec 1.6, "typewiseLB"). A vertex is
ready once all its users are placed; the list of batches is reversed at the end. Types that must
follow a block are emitted with it, so that here a block and its followers are one vertex. Among
equal shares the type wins that has had ready vertices for the longest time.
"""

from __future__ import annotations

import numpy as np

from harness.graph import NO_TYPE, Graph
from harness.policies._compiled import compiled
from harness.policies._ready import N_BATCHES, Ints, followers_of, in_batches
from harness.policies.sufficient import run
from harness.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute, in reversed order, what `sufficient` finds from the outputs."""
    return Schedule(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    block = _block_of(types, arg_start, args, follows)
    new_types, new_start, new_args = _reversed_graph(types, arg_start, args, block)
    no_follows = np.full(len(follows), np.int32(NO_TYPE))
    ready = run(new_types, new_start, new_args, no_follows, True)
    n_batches = ready.counts[N_BATCHES]
    batch_of = np.empty(len(types), np.int32)
    next_id = len(ready.types) - 1
    for v in range(len(types)):
        if block[v] == v:
            batch_of[v] = n_batches - 1 - ready.batch_of[next_id]
            next_id -= 1
        else:
            batch_of[v] = batch_of[block[v]]
    return _with_followers(types, follows, block, batch_of, n_batches)


@compiled
def _block_of(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Ints:
    """Return the block of a vertex that follows one, and every other vertex itself."""
    block = np.empty(len(types), np.int32)
    for v in range(len(types)):
        block[v] = v if follows[types[v]] == NO_TYPE else args[arg_start[v]]
    return block


@compiled
def _reversed_graph(
    types: Ints, arg_start: Ints, args: Ints, block: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the graph of blocks with all edges turned round, the last vertex first."""
    n = 0
    for v in range(len(types)):
        n += 1 if block[v] == v else 0
    new_id = np.empty(len(types), np.int32)
    new_types = np.empty(n, np.int32)
    n_kept = 0
    for v in range(len(types)):
        if block[v] == v:
            n_kept += 1
            new_id[v] = n - n_kept
            new_types[n - n_kept] = types[v]
    new_start = np.zeros(n + 1, np.int32)
    n_edges = 0
    for v in range(len(types)):
        if block[v] == v:
            n_edges += arg_start[v + 1] - arg_start[v]
            for arg in args[arg_start[v] : arg_start[v + 1]]:
                new_start[new_id[block[arg]] + 1] += 1
    for v in range(n):
        new_start[v + 1] += new_start[v]
    free = new_start[:n].copy()
    new_args = np.empty(n_edges, np.int32)
    for v in range(len(types)):
        if block[v] == v:
            for arg in args[arg_start[v] : arg_start[v + 1]]:
                source = new_id[block[arg]]
                new_args[free[source]] = new_id[v]
                free[source] += 1
    return new_types, new_start, new_args


@compiled
def _with_followers(
    types: Ints, follows: Ints, block: Ints, batch_of: Ints, n_batches: int
) -> tuple[Ints, Ints]:
    """Give followers their own batches, one for each of their types, right behind their block's."""
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
