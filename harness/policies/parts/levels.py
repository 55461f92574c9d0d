"""Batches by level and type: what depth-based policies share.

Vertices are in topological order, so one pass gives every level, and a counting sort the batches.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.registry import helper
from harness.policies.parts.ready import followers_of, in_batches
from harness.values.arrays import Ints
from harness.values.graph import NO_TYPE, UNBATCHABLE


@helper
def levels_of(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, count_followers: bool
) -> Ints:
    """Return the longest path to each vertex (sources: 0); vertices that only follow add no step
    unless `count_followers`."""
    level = np.empty(len(types), np.int32)
    for v in range(len(types)):
        step = 1 if count_followers or follows[types[v]] == NO_TYPE else 0
        reached = 0
        for edge in range(arg_start[v], arg_start[v + 1]):
            reached = max(reached, level[args[edge]] + step)
        level[v] = reached
    return level


@helper
def by_level(types: Ints, follows: Ints, level: Ints, follower_step: int) -> tuple[Ints, Ints]:
    """Return order and starts of one batch per (level, type), levels and types increasing.

    Unbatchable vertices are single batches at the front of their level; batches that must follow
    another, `follower_step` levels up, come right behind it.
    """
    n, n_types = len(types), len(follows)
    followers = followers_of(follows)
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
    return in_batches(batch_of, n_batches)
