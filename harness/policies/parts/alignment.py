"""Early or late: where the vertices of a schedule go that may go into several of its batches.

A schedule that was made from the outputs back puts every vertex as late as it can. Trees are read
with few copies so, for both children of a vertex were computed just before it. Sentences are not:
those that are short join the others in the middle, and their states come from elsewhere, whereas
side by side from the first word on they are read as they lie.
"""

from __future__ import annotations

import numpy as np

from harness.machine.compiled import compiled
from harness.policies.parts.ready import Ints, in_batches
from harness.values.graph import UNBATCHABLE


@compiled
def align(
    batch_of: Ints, n_batches: int, types: Ints, arg_start: Ints, args: Ints
) -> tuple[Ints, Ints]:
    """Return the schedule (order, starts) of these batches, or of the same with all vertices early.

    The one whose batches read from fewer other batches is taken; early batches may also be fewer.
    """
    early, n_early = as_early(batch_of, n_batches, types, arg_start, args)
    early_order, early_starts = in_batches(early, n_early)
    if n_early < n_batches:  # as in lattices of operators, where counting what is read takes longer
        return early_order, early_starts
    order, starts = in_batches(batch_of, n_batches)
    late_sources = n_sources(batch_of, order, starts, arg_start, args)
    early_sources = n_sources(early, early_order, early_starts, arg_start, args)
    return (early_order, early_starts) if early_sources < late_sources else (order, starts)


@compiled
def as_early(
    batch_of: Ints, n_batches: int, types: Ints, arg_start: Ints, args: Ints
) -> tuple[Ints, int]:
    """Move every vertex to the first batch of its type behind its arguments'; also how many stay.

    Unbatchable vertices stay where they are. Batches that lose all vertices are left out.
    """
    n, n_types = len(types), 1
    for t in types:
        n_types = max(n_types, t + 1)
    type_of = np.empty(n_batches, np.int32)
    for v in range(n):
        type_of[batch_of[v]] = types[v]
    # next_of[b, t]: the first batch from b on whose type is t.
    next_of = np.empty((n_batches + 1, n_types), np.int32)
    for t in range(n_types):
        next_of[n_batches, t] = n_batches
    for b in range(n_batches - 1, -1, -1):
        for t in range(n_types):
            next_of[b, t] = next_of[b + 1, t]
        next_of[b, type_of[b]] = b
    early = np.empty(n, np.int32)
    used = np.zeros(n_batches, np.int32)
    for v in range(n):
        first = 0
        for edge in range(arg_start[v], arg_start[v + 1]):
            first = max(first, early[args[edge]] + 1)
        early[v] = batch_of[v] if types[v] == UNBATCHABLE else next_of[first, types[v]]
        used[early[v]] = 1
    n_used = 0
    for b in range(n_batches):
        used[b], n_used = n_used, n_used + used[b]
    for v in range(n):
        early[v] = used[early[v]]
    return early, n_used


@compiled
def n_sources(batch_of: Ints, order: Ints, starts: Ints, arg_start: Ints, args: Ints) -> int:
    """Return from how many batches each batch reads, added up."""
    last_reader = np.full(len(starts), np.int32(-1))
    total = 0
    for b in range(len(starts) - 1):
        for k in range(starts[b], starts[b + 1]):
            for edge in range(arg_start[order[k]], arg_start[order[k] + 1]):
                source = batch_of[args[edge]]
                if last_reader[source] != b:
                    last_reader[source] = b
                    total += 1
    return total
