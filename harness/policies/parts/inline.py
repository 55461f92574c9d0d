"""Phases and depths of graphs that no program recorded: what one would have counted.

A graph that is built from arrays has no program to thread a counter through. Its stages are groups
of types that feed each other, in the order in which one feeds the next; within a stage a counter
goes from arguments to users, as if all that may run concurrently did.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.policies.parts.levels import by_level
from harness.values.arrays import Ints
from harness.values.graph import NO_TYPE


@helper
def phases_and_depths(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    """Return both (n,); a vertex that follows another has the phase and the depth of that one."""
    phase_of_type = _phases_of_types(types, arg_start, args, follows)
    phases, depths = np.empty(len(types), np.int32), np.zeros(len(types), np.int32)
    for v in range(len(types)):
        phases[v] = phase_of_type[types[v]]
        step = 1 if follows[types[v]] == NO_TYPE else 0
        for edge in range(arg_start[v], arg_start[v + 1]):
            if phases[args[edge]] == phases[v]:
                depths[v] = max(depths[v], depths[args[edge]] + step)
    return phases, depths


@helper
def _phases_of_types(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Ints:
    """Return the longest path to each type's group, through groups of types that feed each other.

    Unbatchable vertices are no type: they are of the first stage only if all is.
    """
    n_types = len(follows)
    feeds = np.zeros((n_types, n_types), np.bool_)
    for v in range(len(types)):
        for edge in range(arg_start[v], arg_start[v + 1]):
            feeds[types[args[edge]], types[v]] = True
    for t in range(n_types):
        if follows[t] != NO_TYPE:  # it is run with the one that it follows
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
def levels_in_order(phases: Ints, depths: Ints) -> Ints:
    """Return one number for each (phase, depth) that orders them, without gaps between phases."""
    n_phases = 1 + (phases.max() if len(phases) else 0)
    first = np.zeros(n_phases + 1, np.int32)
    for v in range(len(phases)):
        first[phases[v] + 1] = max(first[phases[v] + 1], depths[v] + 1)
    for p in range(n_phases):
        first[p + 1] += first[p]
    found = np.empty(len(phases), np.int32)
    for v in range(len(phases)):
        found[v] = first[phases[v]] + depths[v]
    return found


@compiled
def by_counters(types: Ints, follows: Ints, phases: Ints, depths: Ints) -> tuple[Ints, Ints]:
    """Return order and starts of one batch per (phase, depth, type), all increasing.

    The policy inline_depth, and part of the compiled code that live rounds are planned by.
    """
    return by_level(types, follows, levels_in_order(phases, depths), 0)
