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
from harness.policies.parts.alignment import aligned, as_early
from harness.policies.parts.backwards import Placing, batch_of_placed, make_ready, start_placing
from harness.policies.parts.blocks import block_of, graph_of_blocks, with_followers
from harness.policies.parts.chains import levels_of
from harness.policies.parts.ready import Ints, without_sign
from harness.policies.parts.urgency import N_COUNTS, choice, costs
from harness.values.graph import NO_TYPE, UNBATCHABLE, Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Place batches from the last to the first, always one of the most urgent type."""
    # Two functions: most graphs have no followers, and what they need compiles in half the time.
    batches = _batches_and_followers if (graph.follows != NO_TYPE).any() else _batches
    types, args = without_sign(graph.types), without_sign(graph.args)
    return Schedule(*batches(types, graph.arg_start, args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    placing, n_batches = _run(types, arg_start, args, np.ones(len(follows)))
    late, type_of = batch_of_placed(placing, n_batches)
    early, n_early = as_early(late, type_of, len(follows), types, arg_start, args)
    return aligned(early, n_early, late, n_batches, arg_start, args)


@compiled
def _batches_and_followers(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints
) -> tuple[Ints, Ints]:
    block = block_of(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = graph_of_blocks(types, arg_start, args, block)
    placing, n_batches = _run(block_types, block_start, block_args, costs(types, follows))
    late, type_of = batch_of_placed(placing, n_batches)
    early, n_early = as_early(
        late, type_of, len(follows), block_types, block_start, block_args
    )  # fmt: skip
    of_blocks = early if n_early < n_batches else late
    batch_of = np.empty(len(types), np.int32)
    for k in range(len(old_id)):
        batch_of[old_id[k]] = of_blocks[k]
    for v in range(len(types)):
        batch_of[v] = batch_of[block[v]]
    return with_followers(types, follows, block, batch_of, n_early)


@compiled
def _run(types: Ints, arg_start: Ints, args: Ints, cost: np.ndarray) -> tuple[Placing, int]:
    """Return all batches, from the last to the first, and how many."""
    n_types = len(cost)
    placing, chained = start_placing(types, arg_start, args, n_types)
    short, long = levels_of(types, arg_start, args, n_types, chained)
    reach = np.zeros((n_types, short.shape[1]), np.uint16)
    wait, active = np.zeros(n_types, np.int32), np.empty(n_types, np.uint32)
    score, worth = np.empty(n_types), np.empty(len(chained))
    counts, held = np.empty((N_COUNTS, short.shape[1]), np.uint16), np.empty_like(reach)
    queue, head, tail, end = placing.queue, placing.head, placing.tail, placing.first[1:]
    seen = head.copy()
    n_placed = n_batches = 0
    while n_placed < len(types):
        best = UNBATCHABLE
        if tail[UNBATCHABLE] == head[UNBATCHABLE]:
            best = choice(
                chained, short, long, queue, head, tail, end, seen, wait, reach, cost,
                active, counts, held, worth, score,
            )  # fmt: skip
            reach[best] = 0
        start = head[best]
        head[best] = start + 1 if best == UNBATCHABLE else tail[best]
        placing.batch_type[n_batches] = best
        placing.batch_start[n_batches] = start
        placing.batch_end[n_batches] = head[best]
        n_batches += 1
        n_placed += head[best] - start
        make_ready(placing.n_users, queue, tail, start, head[best], types, arg_start, args)
    return placing, n_batches
