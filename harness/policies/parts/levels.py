"""Batches by level and type, and phases and depths of graphs that no program recorded.

Vertices are in topological order, so one pass computes all levels, and a counting sort the batches.
"""

from __future__ import annotations

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.policies.parts.ready import find_followers, order_batches
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE


@helper
def compute_levels(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, count_followers: bool
) -> Ints:
    """Return the longest path to each vertex (sources: 0).

    Args:
        count_followers: True if vertices of types that follow another are a step of a path, too.
    """
    level = np.empty(len(types), np.int32)
    for v in range(len(types)):
        step = 1 if count_followers or follows[types[v]] == NO_TYPE else 0
        reached = 0
        for edge in range(arg_start[v], arg_start[v + 1]):
            reached = max(reached, level[args[edge]] + step)
        level[v] = reached
    return level


@helper
def batch_by_level(
    types: Ints, follows: Ints, level: Ints, follower_step: int
) -> tuple[Ints, Ints]:
    """Return order and starts of one batch per (level, type), in increasing order.

    Unbatchable vertices are single batches at the start of their level. Batches that must follow
    another, `follower_step` levels later, come right after it.
    """
    n, n_types = len(types), len(follows)
    followers = find_followers(follows)
    n_levels = 2 + (level.max() if n else 0)
    size = np.zeros((n_levels, n_types), np.int32)
    for v in range(n):
        size[level[v], types[v]] += 1
    batch = np.empty((n_levels, n_types), np.int32)
    n_batches = 0
    for depth in range(n_levels):
        batch[depth, UNBATCHABLE] = n_batches
        n_batches += size[depth, UNBATCHABLE]
        for t in range(UNBATCHABLE + 1, n_types):
            if size[depth, t] == 0 or follows[t] != NO_TYPE:
                continue
            batch[depth, t] = n_batches
            n_batches += 1
            for follower in followers:
                if follows[follower] == t and size[depth + follower_step, follower] > 0:
                    batch[depth + follower_step, follower] = n_batches
                    n_batches += 1
    batch_of = np.empty(n, np.int32)
    for v in range(n):
        batch_of[v] = batch[level[v], types[v]]
        if types[v] == UNBATCHABLE:
            batch[level[v], UNBATCHABLE] += 1
    return order_batches(batch_of, n_batches)


@helper
def compute_phases_and_depths(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints
) -> tuple[Ints, Ints]:
    """Return the phases and depths, both (n,), that a program would have counted.

    A graph built from arrays has no program to pass a counter through. Its stages are groups of
    types that feed each other, in the order in which one feeds the next. Within a stage a counter
    passes from arguments to users, as if everything that can run concurrently did. A vertex that
    follows another has its phase and depth.
    """
    phase_of_type = _compute_type_phases(types, arg_start, args, follows)
    phases, depths = np.empty(len(types), np.int32), np.zeros(len(types), np.int32)
    for v in range(len(types)):
        phases[v] = phase_of_type[types[v]]
        step = 1 if follows[types[v]] == NO_TYPE else 0
        for edge in range(arg_start[v], arg_start[v + 1]):
            if phases[args[edge]] == phases[v]:
                depths[v] = max(depths[v], depths[args[edge]] + step)
    return phases, depths


@helper
def _compute_type_phases(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Ints:
    """Return the longest path to each type's group, through groups of types that feed each other.

    Unbatchable vertices count as vertices of one type.
    """
    n_types = len(follows)
    feeds = np.zeros((n_types, n_types), np.bool_)
    for v in range(len(types)):
        for edge in range(arg_start[v], arg_start[v + 1]):
            feeds[types[args[edge]], types[v]] = True
    for t in range(n_types):
        if follows[t] != NO_TYPE:  # it runs with its leader
            feeds[t, follows[t]] = True
            feeds[follows[t], t] = True
    reaches = feeds.copy()
    for middle in range(n_types):
        for t in range(n_types):
            if reaches[t, middle]:
                for u in range(n_types):
                    reaches[t, u] |= reaches[middle, u]
    phases = np.zeros(n_types, np.int32)
    changed = True
    while changed:
        changed = False
        for t in range(n_types):
            for u in range(n_types):
                if feeds[t, u]:
                    least = phases[t] + (0 if reaches[u, t] else 1)
                    if phases[u] < least:
                        phases[u], changed = least, True
    return phases


@helper
def number_levels(phases: Ints, depths: Ints) -> Ints:
    """Return one number per (phase, depth) in their order, without gaps between phases."""
    n_phases = 1 + (phases.max() if len(phases) else 0)
    first = np.zeros(n_phases + 1, np.int32)
    for v in range(len(phases)):
        first[phases[v] + 1] = max(first[phases[v] + 1], depths[v] + 1)
    for p in range(n_phases):
        first[p + 1] += first[p]
    levels = np.empty(len(phases), np.int32)
    for v in range(len(phases)):
        levels[v] = first[phases[v]] + depths[v]
    return levels


@compiled
def batch_by_counters(types: Ints, follows: Ints, phases: Ints, depths: Ints) -> tuple[Ints, Ints]:
    """Return order and starts of one batch per (phase, depth, type), all increasing.

    The policy inline_depth uses it, and the compiled code that plans interleaved segments.
    """
    return batch_by_level(types, follows, number_levels(phases, depths), 0)
