"""Agenda batching: runs the ready type with the smallest average depth.

`agenda` computes the averages once, at the start. Unbatchable vertices go first, in the order in
which they become ready. Among equal averages the last cheap type wins (Graph.cheap), otherwise the
first type. Source: Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic Computation
Graphs", NIPS 2017, Sec. 3.2, and DyNet's dynet/exec.cc.

`agenda_dynamic` uses the averages of the vertices that have not been executed. Among equal averages
the smaller type wins; unbatchable vertices go first. Source: the agenda strategy of ED-Batch's
executor (Chen et al., ICML 2023), AgendaScheduler in its release's dynet/ooc-scheduler.cc.
"""

from __future__ import annotations

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.contracts.policy import ArrayPolicy
from dynbatch.harness.policies.parts.levels import compute_levels
from dynbatch.harness.policies.parts.ready import (
    N_EXECUTED,
    Ready,
    commit,
    count_ready,
    finish,
    start,
)
from dynbatch.harness.values.arrays import Flags, Floats, Ints, Longs
from dynbatch.harness.values.graph import UNBATCHABLE

POLICIES = {"agenda": "schedule", "agenda_dynamic": "schedule_dynamically"}


@compiled
def _compute_batches(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, cheap: Flags
) -> tuple[Ints, Ints]:
    """Execute all ready vertices of the type with the smallest average depth, step by step."""
    average = compute_average_depths(types, arg_start, args, follows)
    ready = start(types, arg_start, args, follows)
    while ready.counts[N_EXECUTED] < len(types):
        commit(ready, find_shallowest(ready, average, cheap))
    return finish(ready)


@helper
def compute_average_depths(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Floats:
    """Return the average depth of the vertices of each type (n_types,).

    Depths are summed while they are computed, during the wait for the previous vertex's depth.
    """
    depth = np.empty(len(types), np.int32)
    total = np.zeros(len(follows), np.int64)
    count = np.zeros(len(follows), np.int64)
    for v in range(len(types)):
        reached = 0
        for edge in range(arg_start[v], arg_start[v + 1]):
            reached = max(reached, depth[args[edge]] + 1)
        depth[v] = reached
        total[types[v]] += reached
        count[types[v]] += 1
    average = np.zeros(len(follows))
    for t in range(len(follows)):
        average[t] = total[t] / max(count[t], 1)
    return average


@helper
def find_shallowest(ready: Ready, average: Floats, cheap: Flags) -> int:
    """Return the ready type with the smallest average depth; the unbatchable one first."""
    if count_ready(ready, UNBATCHABLE) > 0:
        return UNBATCHABLE
    best = UNBATCHABLE
    for t in range(UNBATCHABLE + 1, len(average)):
        if count_ready(ready, t) == 0:
            continue
        shallower = best == UNBATCHABLE or average[t] < average[best]
        if shallower or (cheap[t] and average[t] == average[best]):
            best = t
    return best


@compiled
def _compute_dynamic_batches(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints
) -> tuple[Ints, Ints]:
    """Execute all ready vertices of the type whose remaining vertices have the smallest depth."""
    depth = compute_levels(types, arg_start, args, follows, True)
    total = np.zeros(len(follows), np.int64)
    count = np.zeros(len(follows), np.int64)
    for v in range(len(types)):
        total[types[v]] += depth[v]
        count[types[v]] += 1
    ready = start(types, arg_start, args, follows)
    while ready.counts[N_EXECUTED] < len(types):
        t = _find_shallowest_remaining(ready, total, count)
        if t != UNBATCHABLE:
            for v in ready.queue[ready.head[t] : ready.tail[t]]:
                total[t] -= depth[v]
                count[t] -= 1
        commit(ready, t)
    return finish(ready)


@helper
def _find_shallowest_remaining(ready: Ready, total: Longs, count: Longs) -> int:
    if count_ready(ready, UNBATCHABLE) > 0:
        return UNBATCHABLE
    best = UNBATCHABLE
    for t in range(UNBATCHABLE + 1, len(total)):
        # Fractions are compared exactly: total / count < total' / count'.
        if count_ready(ready, t) > 0 and (
            best == UNBATCHABLE or total[t] * count[best] < total[best] * count[t]
        ):
            best = t
    return best


schedule = ArrayPolicy(_compute_batches, ("follows", "cheap"))
schedule_dynamically = ArrayPolicy(_compute_dynamic_batches)
