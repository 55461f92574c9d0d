"""Sufficient-condition heuristic: the type whose ready set is the largest share of F(G^t).

Source: Chen et al., "ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned
Finite State Machines", ICML 2023. A share of 1 is provably safe: some shortest schedule starts with
that type. Among equal shares the smaller type wins; unbatchable vertices go first.
"""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.policies.parts.extracted import Extracted, extract, remove
from harness.policies.parts.ready import N_EXECUTED, Ready, commit, finish, n_ready, start
from harness.values.arrays import Ints
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute all ready vertices of the type that leaves the fewest behind."""
    return Schedule.proved(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    return finish(run(types, arg_start, args, follows, False))


@helper
def run(types: Ints, arg_start: Ints, args: Ints, follows: Ints, oldest_first: bool) -> Ready:
    """Return the state after the last batch; among equal shares the smaller type wins, or with
    `oldest_first` the one that has had ready vertices for the longest time."""
    ready = start(types, arg_start, args, follows)
    extracted = extract(types, arg_start, args, len(follows))
    while ready.counts[N_EXECUTED] < len(types):
        t = safest(ready, extracted, oldest_first)
        if t != UNBATCHABLE:
            for v in ready.queue[ready.head[t] : ready.tail[t]]:
                remove(extracted, ready, v)
        commit(ready, t)
    return ready


@helper
def safest(ready: Ready, extracted: Extracted, oldest_first: bool) -> int:
    """Return the ready type of largest share; the unbatchable one first."""
    if n_ready(ready, UNBATCHABLE) > 0:
        return UNBATCHABLE
    best, best_ready, best_frontier = UNBATCHABLE, 0, 1
    for t in range(UNBATCHABLE + 1, len(extracted.n_frontier)):
        size, frontier = n_ready(ready, t), extracted.n_frontier[t]
        if size == 0:
            continue
        # Shares are compared exactly: size / frontier > best_ready / best_frontier.
        gain = size * best_frontier - best_ready * frontier
        if gain > 0 or (gain == 0 and oldest_first and ready.since[t] < ready.since[best]):
            best, best_ready, best_frontier = t, size, frontier
    return best
