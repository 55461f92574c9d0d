"""Batches that a schedule can do without: those to which no vertex is bound.

A vertex may be in any batch of its type between the earliest one, behind the earliest places of its
arguments, and the latest one, before the latest places of its users. One whose earliest batch is
its latest is *bound* to it. A batch can be left out if and only if none is bound to it: what could
come before goes to its earliest place, all others to their latest, and no edge turns round.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.registry import helper
from harness.values.arrays import Flags, Ints, IntTable
from harness.values.graph import UNBATCHABLE


@helper
def find_bound(early: Ints, late: Ints, bound: Flags) -> tuple[int, int]:
    """Set which batches (n_batches,) have a vertex whose earliest one (n,) is its latest one (n,).

    Return how many, and how many vertices are bound.
    """
    bound[:] = False
    n_vertices = 0
    for v in range(len(early)):
        if early[v] == late[v]:
            bound[late[v]] = True
            n_vertices += 1
    return int(bound.sum()), n_vertices


@helper
def use_others(batch_of: Ints, kept: Flags) -> bool:
    """Whether a vertex is in a batch (n,) that is not among those kept (n_batches,)."""
    n_others = 0
    for v in range(len(batch_of)):
        n_others += not kept[batch_of[v]]
    return n_others > 0


@helper
def earliest_in(
    kept: Flags, type_of: Ints, n_types: int, late: Ints, types: Ints, arg_start: Ints, args: Ints
) -> Ints:
    """Return the first batch (n,) that is kept, behind its arguments', for every vertex.

    Where that is behind its latest batch, this one is kept again: so a vertex is never later than
    that, and its users find theirs. Unbatchable vertices stay where they are.

    kept (n_batches,): batches of unbatchable vertices are. type_of
        (n_batches,): types of batches. late (n,): the latest batches, if all of them are kept.
    """
    next_of = _next_of(kept, type_of, n_types)
    early = np.empty(len(types), np.int32)
    for v in range(len(types)):
        first, t = 0, types[v]
        for edge in range(arg_start[v], arg_start[v + 1]):
            first = max(first, early[args[edge]] + 1)
        early[v] = late[v] if t == UNBATCHABLE else next_of[t, first]
        if early[v] > late[v]:
            early[v] = b = late[v]
            while b >= 0 and next_of[t, b] > late[v]:
                next_of[t, b] = late[v]
                b -= 1
    return early


@helper
def _next_of(kept: Flags, type_of: Ints, n_types: int) -> IntTable:
    """Return the first batch from b on that is kept and of type t, at [t, b]; n_batches: none.

    A row a type: where a vertex goes is waited for by the next one, and its type is known before.
    """
    n_batches = len(kept)
    next_of = np.empty((n_types, n_batches + 1), np.int32)
    n_set = np.zeros(n_types, np.int32)
    for b in range(n_batches):
        if kept[b]:
            t = type_of[b]
            next_of[t, n_set[t] : b + 1] = b
            n_set[t] = b + 1
    for t in range(n_types):
        next_of[t, n_set[t] :] = n_batches
    return next_of
