"""Agenda batching with averages kept up to date: the average depth of vertices not yet executed.

Source: the agenda strategy of ED-Batch's executor (Chen et al., ICML 2023), AgendaScheduler in its
release's dynet/ooc-scheduler.cc. The smallest average wins, among equal ones the smaller type;
unbatchable vertices go first.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.policies.parts.levels import levels_of
from harness.policies.parts.ready import N_EXECUTED, Ready, commit, finish, n_ready, start
from harness.values.arrays import Ints, Longs
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute all ready vertices of the type whose remaining vertices are shallowest on average."""
    return Schedule.proved(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    depth = levels_of(types, arg_start, args, follows, True)
    total = np.zeros(len(follows), np.int64)
    count = np.zeros(len(follows), np.int64)
    for v in range(len(types)):
        total[types[v]] += depth[v]
        count[types[v]] += 1
    ready = start(types, arg_start, args, follows)
    while ready.counts[N_EXECUTED] < len(types):
        t = _shallowest(ready, total, count)
        if t != UNBATCHABLE:
            for v in ready.queue[ready.head[t] : ready.tail[t]]:
                total[t] -= depth[v]
                count[t] -= 1
        commit(ready, t)
    return finish(ready)


@helper
def _shallowest(ready: Ready, total: Longs, count: Longs) -> int:
    if n_ready(ready, UNBATCHABLE) > 0:
        return UNBATCHABLE
    best = UNBATCHABLE
    for t in range(UNBATCHABLE + 1, len(total)):
        # Fractions are compared exactly: total / count < total' / count'.
        if n_ready(ready, t) > 0 and (
            best == UNBATCHABLE or total[t] * count[best] < total[best] * count[t]
        ):
            best = t
    return best
