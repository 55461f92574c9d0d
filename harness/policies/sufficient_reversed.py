"""Sufficient-condition heuristic on the reversed graph: batches are found from the outputs back.

Source: getBatches_typewiseLB of ED-Batch's release (Chen et al., ICML 2023). A vertex is ready once
all its users are placed; the list of batches is reversed at the end. Types that must follow a block
are emitted with it, so that here a block and its followers are one vertex. Among equal shares the
type wins that has had ready vertices for the longest time.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.policies.parts.blocks import block_of, with_followers
from harness.policies.parts.ready import N_BATCHES
from harness.policies.sufficient import run
from harness.values.arrays import Ints
from harness.values.graph import NO_TYPE, Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute, in reversed order, what `sufficient` finds from the outputs."""
    return Schedule.proved(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    block = block_of(types, arg_start, args, follows)
    new_types, new_start, new_args = _reversed_graph(types, arg_start, args, block)
    no_follows = np.full(len(follows), NO_TYPE, np.int32)
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
    return with_followers(types, follows, block, batch_of, n_batches)


@helper
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
