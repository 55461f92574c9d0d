"""Sufficient-condition heuristic: the type whose ready set is the largest fraction of F(G^t).

`sufficient`: A fraction of 1 is provably safe: some shortest schedule starts with that type. Among
equal fractions the smaller type wins; unbatchable vertices go first. Source: Chen et al.,
"ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned Finite State
Machines", ICML 2023.

`sufficient_reversed`: The same on the reversed graph, so batches are found from the outputs
backwards (getBatches_typewiseLB of ED-Batch's release). A vertex is ready once all its users are
placed; the list of batches is reversed at the end. Types that must follow a block are emitted with
it, so a block and its followers are one vertex here. Among equal fractions the type wins that has
had ready vertices for the longest time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.contracts.policy import ArrayPolicy
from dynbatch.harness.policies.parts.backwards import (
    build_block_graph,
    find_blocks,
    insert_followers,
)
from dynbatch.harness.policies.parts.ready import (
    N_BATCHES,
    N_EXECUTED,
    Ready,
    commit,
    count_ready,
    find_users,
    finish,
    start,
)
from dynbatch.harness.values.arrays import Ints, IntTable
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE

POLICIES = {"sufficient": "schedule", "sufficient_reversed": "schedule_reversed"}


@compiled
def _compute_batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    """Execute all ready vertices of the type with the largest fraction, step by step."""
    return finish(run(types, arg_start, args, follows, False))


@helper
def run(types: Ints, arg_start: Ints, args: Ints, follows: Ints, oldest_first: bool) -> Ready:
    """Return the state after the last batch.

    Args:
        oldest_first: among equal fractions the type that has had ready vertices for the longest
            time wins; otherwise the smaller type.
    """
    ready = start(types, arg_start, args, follows)
    extracted = extract(types, arg_start, args, len(follows))
    while ready.counts[N_EXECUTED] < len(types):
        t = find_safest(ready, extracted, oldest_first)
        if t != UNBATCHABLE:
            for v in ready.queue[ready.head[t] : ready.tail[t]]:
                remove(extracted, ready, v)
        commit(ready, t)
    return ready


@helper
def find_safest(ready: Ready, extracted: Extracted, oldest_first: bool) -> int:
    """Return the ready type with the largest fraction; the unbatchable one first."""
    if count_ready(ready, UNBATCHABLE) > 0:
        return UNBATCHABLE
    best, best_ready, best_frontier = UNBATCHABLE, 0, 1
    for t in range(UNBATCHABLE + 1, len(extracted.n_frontier)):
        size, frontier = count_ready(ready, t), extracted.n_frontier[t]
        if size == 0:
            continue
        # Fractions are compared exactly: size / frontier > best_ready / best_frontier.
        gain = size * best_frontier - best_ready * frontier
        if gain > 0 or (gain == 0 and oldest_first and ready.since[t] < ready.since[best]):
            best, best_ready, best_frontier = t, size, frontier
    return best


@compiled
def _compute_reversed_batches(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints
) -> tuple[Ints, Ints]:
    """Execute, in reverse order, the batches that `sufficient` finds from the outputs."""
    block = find_blocks(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = build_block_graph(types, arg_start, args, block)
    new_types, new_start, new_args = _reverse_graph(block_types, block_start, block_args)
    no_follows = np.full(len(follows), NO_TYPE, np.int32)
    ready = run(new_types, new_start, new_args, no_follows, True)
    n, n_batches = len(old_id), ready.counts[N_BATCHES]
    block_batches = np.empty(n, np.int32)
    for k in range(n):
        block_batches[k] = n_batches - 1 - ready.batch_of[n - 1 - k]
    return insert_followers(types, follows, block, old_id, block_batches, n_batches)


@helper
def _reverse_graph(types: Ints, arg_start: Ints, args: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the graph with all edges reversed, the last vertex first."""
    n, n_edges = len(types), 0
    user_start, users = find_users(n, arg_start, args)
    new_types, new_args = np.empty(n, np.int32), np.empty(len(args), np.int32)
    new_start = np.zeros(n + 1, np.int32)
    for k in range(n):
        v = n - 1 - k
        new_types[k] = types[v]
        for edge in range(user_start[v], user_start[v + 1]):
            new_args[n_edges] = n - 1 - users[edge]
            n_edges += 1
        new_start[k + 1] = n_edges
    return new_types, new_start, new_args


class Extracted(NamedTuple):
    """Values of |F(G^t)| for every type t, updated while a schedule is made.

    F(G^t) contains the remaining vertices of type t without a remaining ancestor of type t. An
    argument edge (a, v) *carries* t while a remains and is of type t or has a carrying edge itself.
    Carrying edges are counted per vertex and type. An edge that stops carrying a type never carries
    it again, so all updates of a whole schedule cost O(edges x types), in any order.

    Attributes:
        carrying: (n, n_types), number of argument edges of each vertex that carry each type.
        n_frontier: (n_types,), |F(G^t)|.
        stack: (n,), scratch.

    Source: Chen et al., "ED-Batch", ICML 2023, Fig. 2 (c), for G^t.
    """

    carrying: IntTable
    n_frontier: Ints
    stack: Ints


@helper
def extract(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> Extracted:
    """Return the counts before the first batch."""
    n = len(types)
    carrying = np.zeros((n, n_types), np.int32)
    n_frontier = np.zeros(n_types, np.int32)
    for v in range(n):
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            for t in range(n_types):
                if carrying[arg, t] > 0 or types[arg] == t:
                    carrying[v, t] += 1
        if carrying[v, types[v]] == 0:
            n_frontier[types[v]] += 1
    return Extracted(carrying, n_frontier, np.empty(n, np.int32))


@helper
def remove(extracted: Extracted, ready: Ready, v: int) -> None:
    """Remove a ready vertex from the counts before it is executed."""
    t = ready.types[v]
    extracted.n_frontier[t] -= 1
    # A ready vertex carries only its own type.
    extracted.stack[0] = v
    depth = 1
    while depth > 0:
        depth -= 1
        source = extracted.stack[depth]
        for edge in range(ready.user_start[source], ready.user_start[source + 1]):
            user = ready.users[edge]
            extracted.carrying[user, t] -= 1
            if extracted.carrying[user, t] > 0:
                continue
            if ready.types[user] == t:
                extracted.n_frontier[t] += 1
            else:
                extracted.stack[depth] = user
                depth += 1


schedule = ArrayPolicy(_compute_batches)
schedule_reversed = ArrayPolicy(_compute_reversed_batches)
