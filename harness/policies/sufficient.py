"""Sufficient-condition heuristic: the type whose ready set is the largest share of F(G^t).

Source: Chen et al., "ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned
Finite State Machines", ICML 2023 (spec 1.6). A share of 1 is provably safe: some shortest schedule
starts with that type. Among equal shares the smaller type wins; unbatchable vertices go first.
"""

from __future__ import annotations

from harness.graph import UNBATCHABLE, Graph
from harness.policies._compiled import compiled
from harness.policies._extracted import Extracted, extract, remove
from harness.policies._ready import N_EXECUTED, Ints, Ready, commit, finish, n_ready, start
from harness.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute all ready vertices of the type that leaves the fewest behind."""
    return Schedule(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    return finish(run(types, arg_start, args, follows))


@compiled
def run(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Ready:
    """Return the state after the last batch."""
    ready = start(types, arg_start, args, follows)
    extracted = extract(types, arg_start, args, len(follows))
    while ready.counts[N_EXECUTED] < len(types):
        t = _safest(ready, extracted)
        if t != UNBATCHABLE:
            for v in ready.queue[ready.head[t] : ready.tail[t]]:
                remove(extracted, ready, v)
        commit(ready, t)
    return ready


@compiled
def _safest(ready: Ready, extracted: Extracted) -> int:
    if n_ready(ready, UNBATCHABLE) > 0:
        return UNBATCHABLE
    best, best_ready, best_frontier = UNBATCHABLE, 0, 1
    for t in range(UNBATCHABLE + 1, len(extracted.n_frontier)):
        size, frontier = n_ready(ready, t), extracted.n_frontier[t]
        # Shares are compared exactly: size / frontier > best_ready / best_frontier.
        if size * best_frontier > best_ready * frontier:
            best, best_ready, best_frontier = t, size, frontier
    return best
