"""Early or late: where the vertices of a schedule go that may go into several of its batches.

A schedule that was made from the outputs back puts every vertex as late as it can. Trees are read
with few copies so, for both children of a vertex were computed just before it. Sentences are not:
those that are short join the others in the middle, and their states come from elsewhere, whereas
side by side from the first word on they are read as they lie.
"""

from __future__ import annotations

import numpy as np

from harness.machine.compiled import compiled
from harness.policies.parts.dispensable import can_be_fewer, earliest_in, without_empty
from harness.policies.parts.ready import Ints, in_batches


@compiled
def aligned(
    early: Ints, n_early: int, late: Ints, n_late: int, arg_start: Ints, args: Ints
) -> tuple[Ints, Ints]:
    """Return the schedule (order, starts) of one of two places (n,) for every vertex.

    Early batches where they are fewer, else those which read from fewer other batches; of equals
    the late ones.
    """
    early_order, early_starts = in_batches(early, n_early)
    if n_early < n_late:  # as in lattices, where counting what is read takes longer
        return early_order, early_starts
    order, starts = in_batches(late, n_late)
    late_sources = n_sources(late, order, starts, arg_start, args)
    early_sources = n_sources(early, early_order, early_starts, arg_start, args)
    return (early_order, early_starts) if early_sources < late_sources else (order, starts)


@compiled
def as_early(
    late: Ints, type_of: Ints, n_types: int, types: Ints, arg_start: Ints, args: Ints
) -> tuple[Ints, int]:
    """Move vertices to earlier batches of their types, and leave out what need not be there.

    late (n,): the batch of each vertex, none of which could come later. type_of (n_batches,): types
        of batches.
    """
    n_batches = len(type_of)
    kept = np.ones(n_batches, np.bool_)
    early = earliest_in(kept, type_of, n_types, late, types, arg_start, args)
    if can_be_fewer(early, late, kept):
        early = earliest_in(kept, type_of, n_types, late, types, arg_start, args)
    return without_empty(early, n_batches)


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
