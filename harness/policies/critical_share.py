"""Critical share: from the outputs backwards, the type that most critical chains wait for.

This project's own rule; see docs/critical_share.md. Unbatchable vertices go first, then types that
are provably safe, then the most urgent one; among equals the smaller type wins. At the end, batches
that no vertex is bound to are removed, and vertices may move to earlier batches of their type
(parts/alignment.py).

It is a weighted majority merge, whose weights are those of the chains that make up ED-Batch's lower
bound. Source: Jiang and Li, "On the approximation of shortest common supersequences and longest
common subsequences", SIAM Journal on Computing 24(5), 1995; weighted by Branke, Middendorf and
Schneider, "Improved heuristics and a genetic algorithm for finding short supersequences", OR
Spektrum 20, 1998.
"""

from __future__ import annotations

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.contracts.policy import ArrayPolicy
from dynbatch.harness.policies.parts.alignment import FEWER, choose_batches, move_early
from dynbatch.harness.policies.parts.backwards import (
    assign_batches,
    build_block_graph,
    find_blocks,
    insert_followers,
    place,
    start_placing,
)
from dynbatch.harness.policies.parts.chains import find_chains
from dynbatch.harness.policies.parts.ready import order_used_batches
from dynbatch.harness.policies.parts.urgency import choose_type, compute_costs, start_choosing
from dynbatch.harness.values.arrays import Floats, Ints
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE


@compiled
def _compute_batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    """Place batches from the last to the first, always one of the most urgent type."""
    for t in range(len(follows)):
        if follows[t] != NO_TYPE:
            return _compute_batches_with_followers(types, arg_start, args, follows)
    late, type_of = _find_latest(types, arg_start, args, np.ones(len(follows)))
    early, change = move_early(late, type_of, len(follows), types, arg_start, args)
    batch_of = choose_batches(early, late, change, len(type_of), arg_start, args)
    return order_used_batches(batch_of, len(type_of))


@helper
def _compute_batches_with_followers(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints
) -> tuple[Ints, Ints]:
    """Place batches of blocks; most graphs have no followers and need no graph of blocks."""
    block = find_blocks(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = build_block_graph(types, arg_start, args, block)
    late, type_of = _find_latest(
        block_types, block_start, block_args, compute_costs(types, follows)
    )
    early, change = move_early(late, type_of, len(follows), block_types, block_start, block_args)
    batches = early if change == FEWER else late
    return insert_followers(types, follows, block, old_id, batches, len(type_of))


@helper
def _find_latest(types: Ints, arg_start: Ints, args: Ints, cost: Floats) -> tuple[Ints, Ints]:
    """Return each vertex's batch (n,), the latest possible, and the types of the batches."""
    n_users, n_of_type, chains = find_chains(types, arg_start, args, len(cost))
    placing = start_placing(types, n_users, n_of_type)
    known, scratch = start_choosing(placing, chains)
    sequence, sizes = np.empty(len(types), np.int32), np.empty(len(types), np.int32)
    n_placed = n_batches = 0
    while n_placed < len(types):
        best = UNBATCHABLE
        if placing.tail[UNBATCHABLE] == placing.head[UNBATCHABLE]:
            best = choose_type(placing, chains, cost, known, scratch)
            known.reach[best] = 0
        size = place(placing, best, types, arg_start, args)
        sequence[n_batches], sizes[n_batches] = best, size
        n_batches += 1
        n_placed += size
    return assign_batches(placing, sequence[:n_batches], sizes[:n_batches])


schedule = ArrayPolicy(_compute_batches)
