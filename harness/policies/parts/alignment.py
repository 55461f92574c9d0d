"""Early or late: where the vertices of a schedule go that may go into several of its batches.

A schedule that was made from the outputs back puts every vertex as late as it can. Trees are read
with few copies so, for both children of a vertex were computed just before it. Sentences are not:
those that are short join the others in the middle, and their states come from elsewhere, whereas
side by side from the first word on they are read as they lie.

Batches to which no vertex is bound are left out. A vertex may be in any batch of its type between
the earliest one, behind the earliest batches of its arguments, and the latest one, before the
latest batches of its users. One whose earliest batch is its latest is *bound* to it. A batch can be
left out if and only if none is bound to it: what could come before goes to its earliest batch, all
others to their latest, and no edge turns round.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.compiler.registry import helper
from harness.values.arrays import Flags, Ints, IntTable
from harness.values.graph import UNBATCHABLE

MOST_PAIRS = 2**20  # of batches, whose bits stay in a CPU's second cache; a power of two
WORD = 64
SAME, MOVED, FEWER = range(3)  # early batches: the late ones, as many of them, or fewer


@helper
def aligned(
    early: Ints, late: Ints, change: int, n_batches: int, arg_start: Ints, args: Ints
) -> Ints:
    """Return one of two places (n,) for every vertex.

    Early batches where they are fewer, else those which read from fewer other batches; of equals
    the late ones. change: what makes early ones of late ones, as as_early tells.
    """
    is_early = change == FEWER
    if change == MOVED:
        n_early_sources, n_late_sources = n_sources(early, late, n_batches, arg_start, args)
        is_early = n_early_sources < n_late_sources
    return early if is_early else late


@helper
def as_early(
    late: Ints, type_of: Ints, n_types: int, types: Ints, arg_start: Ints, args: Ints
) -> tuple[Ints, int]:
    """Move vertices to earlier batches of their types, and leave out what need not be there.

    Return the batches (n,), of which those left out are empty, and SAME, MOVED or FEWER.

    late (n,): the batch of each vertex, none of which could come later. type_of (n_batches,): types
        of batches.
    """
    n_batches = len(type_of)
    kept = np.ones(n_batches, np.bool_)
    early = earliest_in(kept, type_of, n_types, late, types, arg_start, args)
    n_bound, n_bound_vertices = find_bound(early, late, kept)
    if n_bound == n_batches:
        return early, SAME if n_bound_vertices == len(types) else MOVED
    if use_others(early, kept):
        early = earliest_in(kept, type_of, n_types, late, types, arg_start, args)
    return early, FEWER


@helper
def n_sources(
    one: Ints, other: Ints, n_batches: int, arg_start: Ints, args: Ints
) -> tuple[int, int]:
    """Return from how many batches each batch reads, added up, of two places (n,) for each vertex.

    Exactly up to 1024 batches; of more, a few pairs share a bit and count once, in both places.
    """
    n_words = min(n_batches * n_batches, MOST_PAIRS) // WORD + 1
    of_one, of_other = np.zeros(n_words, np.uint64), np.zeros(n_words, np.uint64)
    n_of_one = n_of_other = 0
    for v in range(len(one)):
        pairs_of_one, pairs_of_other = one[v] * n_batches, other[v] * n_batches
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            n_of_one += _is_new(of_one, pairs_of_one + one[arg])
            n_of_other += _is_new(of_other, pairs_of_other + other[arg])
    return n_of_one, n_of_other


@helper
def _is_new(met: NDArray[np.uint64], pair: int) -> int:
    """Whether a bit is not set yet; it is then."""
    place = np.uint64(pair & (MOST_PAIRS - 1))
    word, bit = place // np.uint64(WORD), np.uint64(1) << place % np.uint64(WORD)
    if met[word] & bit:
        return 0
    met[word] |= bit
    return 1


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
