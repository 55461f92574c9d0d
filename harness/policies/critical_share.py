"""Critical share: from the outputs back, the type that most chains of critical length wait for.

This project's own rule: docs/critical_share.md. It is a weighted majority merge (Jiang and Li, "On
the approximation of shortest common supersequences and longest common subsequences", SIAM Journal
on Computing 24(5), 1995; weighted by Branke, Middendorf and Schneider, "Improved heuristics and a
genetic algorithm for finding short supersequences", OR Spektrum 20, 1998), whose weights are those
of the chains that make up ED-Batch's lower bound. Unbatchable vertices go first, then types that
are provably safe, then the most urgent one; among equals the smaller type wins. In the end batches
are left out that no vertex is bound to (parts/dispensable.py), and vertices may move to earlier
batches of their type (parts/alignment.py).
"""

from __future__ import annotations

import numpy as np

from harness.machine.compiled import compiled
from harness.policies.parts.alignment import FEWER, aligned, as_early
from harness.policies.parts.backwards import batch_of_placed, place, start_placing
from harness.policies.parts.blocks import block_of, graph_of_blocks, with_followers
from harness.policies.parts.chains import chains_of
from harness.policies.parts.ready import Ints, in_used_batches, without_sign
from harness.policies.parts.urgency import N_COUNTS, choice, costs
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Place batches from the last to the first, always one of the most urgent type."""
    # Two functions: most graphs have no followers, and what they need compiles in half the time.
    batches = _batches_and_followers if graph.has_followers else _batches
    types, args = without_sign(graph.types), without_sign(graph.args)
    return Schedule.proved(*batches(types, graph.arg_start, args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    late, type_of = _latest(types, arg_start, args, np.ones(len(follows)))
    early, change = as_early(late, type_of, len(follows), types, arg_start, args)
    batch_of = aligned(early, late, change, len(type_of), arg_start, args)
    return in_used_batches(batch_of, len(type_of))


@compiled
def _batches_and_followers(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints
) -> tuple[Ints, Ints]:
    block = block_of(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = graph_of_blocks(types, arg_start, args, block)
    late, type_of = _latest(block_types, block_start, block_args, costs(types, follows))
    early, change = as_early(late, type_of, len(follows), block_types, block_start, block_args)
    of_blocks = early if change == FEWER else late
    batch_of = np.empty(len(types), np.int32)
    for k in range(len(old_id)):
        batch_of[old_id[k]] = of_blocks[k]
    for v in range(len(types)):
        batch_of[v] = batch_of[block[v]]
    return with_followers(types, follows, block, batch_of, len(type_of))


@compiled
def _latest(types: Ints, arg_start: Ints, args: Ints, cost: np.ndarray) -> tuple[Ints, Ints]:
    """Return the batch (n,) of every vertex, none of which could be later, and types of batches."""
    n_types = len(cost)
    n_users, n_of_type, chained, short, long = chains_of(types, arg_start, args, n_types)
    _, queue, first, head, tail = start_placing(types, n_users, n_of_type)
    reach = np.zeros((n_types, short.shape[1]), np.uint16)
    seen, wait, active = head.copy(), np.zeros(n_types, np.int32), np.empty(n_types, np.uint32)
    counts, held = np.empty((N_COUNTS, short.shape[1]), np.uint16), np.empty_like(reach)
    worth, score = np.empty(len(chained)), np.empty(n_types)
    sequence, sizes = np.empty(len(types), np.int32), np.empty(len(types), np.int32)
    n_placed = n_batches = 0
    while n_placed < len(types):
        best = UNBATCHABLE
        if tail[UNBATCHABLE] == head[UNBATCHABLE]:
            best = choice(
                chained, short, long, queue, head, tail, first[1:], seen, wait, reach, cost,
                active, counts, held, worth, score,
            )  # fmt: skip
            reach[best] = 0
        size = place(n_users, queue, head, tail, best, types, arg_start, args)
        sequence[n_batches], sizes[n_batches] = best, size
        n_batches += 1
        n_placed += size
    batch_of = batch_of_placed(queue, first, sequence[:n_batches], sizes[:n_batches])
    return batch_of, sequence[:n_batches][::-1].copy()
