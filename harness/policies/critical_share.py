"""Critical share: from the outputs back, the type that most chains of critical length wait for.

This project's own rule: docs/critical_share.md. It is a weighted majority merge (Jiang and Li, "On
the approximation of shortest common supersequences and longest common subsequences", SIAM Journal
on Computing 24(5), 1995; weighted by Branke, Middendorf and Schneider, "Improved heuristics and a
genetic algorithm for finding short supersequences", OR Spektrum 20, 1998), whose weights are those
of the chains that make up ED-Batch's lower bound. Unbatchable vertices go first, then types that
are provably safe, then the most urgent one; among equals the smaller type wins. In the end vertices
may move to earlier batches of their type (parts/alignment.py), which can empty some.
"""

from __future__ import annotations

import numpy as np

from harness.machine.compiled import compiled
from harness.policies.parts.alignment import align, as_early
from harness.policies.parts.blocks import block_of, graph_of_blocks, with_followers
from harness.policies.parts.chains import chains_of
from harness.policies.parts.ready import (
    N_BATCHES,
    N_EXECUTED,
    Ints,
    Ready,
    commit,
    start_from_outputs,
)
from harness.policies.parts.urgency import NONE, costs, most_urgent, raise_reach
from harness.values.graph import NO_TYPE, UNBATCHABLE, Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Place batches from the last to the first, always one of the most urgent type."""
    return Schedule(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    cost = costs(types, follows)
    if not (follows != NO_TYPE).any():
        ready = _run(types, arg_start, args, cost)
        n_batches = ready.counts[N_BATCHES]
        batch_of = (n_batches - 1 - ready.batch_of).astype(np.int32)
        return align(batch_of, n_batches, types, arg_start, args)
    block = block_of(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = graph_of_blocks(types, arg_start, args, block)
    small = _run(block_types, block_start, block_args, cost)
    n_batches = small.counts[N_BATCHES]
    late = (n_batches - 1 - small.batch_of).astype(np.int32)
    early, n_early = as_early(late, n_batches, block_types, block_start, block_args)
    batch_of = np.empty(len(types), np.int32)
    batch_of[old_id] = early if n_early < n_batches else late
    return with_followers(types, follows, block, batch_of[block], n_early)


@compiled
def _run(types: Ints, arg_start: Ints, args: Ints, cost: np.ndarray) -> Ready:
    """Return the state after the last batch; batches are numbered from the outputs back."""
    n_types = len(cost)
    chained, level = chains_of(types, arg_start, args, n_types)
    reach = np.full((n_types, len(chained)), np.int32(NONE))
    wait, active = np.zeros(n_types, np.int32), np.empty(n_types, np.int32)
    score, held, others = np.empty(n_types), np.empty(n_types), np.empty(n_types)
    ready = start_from_outputs(types, arg_start, args, n_types)
    queue, head, tail, end = ready.queue, ready.head, ready.tail, ready.first[1:]
    seen = head.copy()  # queue[head[t]:seen[t]] were ready before the last batch
    while ready.counts[N_EXECUTED] < len(types):
        if tail[UNBATCHABLE] > head[UNBATCHABLE]:
            commit(ready, UNBATCHABLE)
            continue
        best = NONE
        for t in range(UNBATCHABLE + 1, n_types):
            wait[t] = wait[t] + 1 if seen[t] > head[t] else 0
            if tail[t] > seen[t]:
                raise_reach(reach[t], level, queue[seen[t] : tail[t]])
                seen[t] = tail[t]
            if best == NONE and tail[t] > head[t] and tail[t] == end[t]:
                best = t  # Safe: all that remain are ready.
        if best == NONE:
            best = most_urgent(
                chained, reach, head, tail, end, wait, cost, active, score, held, others
            )  # fmt: skip
        reach[best] = NONE
        commit(ready, best)
    return ready
