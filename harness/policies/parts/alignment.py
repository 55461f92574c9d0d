"""Alignment: a choice between early and late batches for vertices that fit several batches.

A schedule made from the outputs backwards puts every vertex as late as possible. Trees then need
few copies, as both children of a vertex are computed just before it. Sentences need many: short
ones join the others in the middle, and their states come from elsewhere. If all sentences start
together, their states are read in place.

Batches to which no vertex is bound are removed. A vertex can be in any batch of its type from its
earliest one, after the earliest batches of its arguments, to its latest one, before the latest
batches of its users. A vertex whose earliest batch is its latest is *bound* to it. A batch can be
removed if and only if no vertex is bound to it: vertices that can run before it go to their
earliest batch, all others to their latest, and no edge is reversed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.values.arrays import Flags, Ints, IntTable
from dynbatch.harness.values.graph import UNBATCHABLE

MAX_PAIRS = 2**20  # of batches, whose bits fit a CPU's second-level cache; a power of two
WORD = 64
SAME, MOVED, FEWER = range(3)  # early batches: the same as the late ones, as many, or fewer


@helper
def choose_batches(
    early: Ints, late: Ints, change: int, n_batches: int, arg_start: Ints, args: Ints
) -> Ints:
    """Return one of two batches (n,) for every vertex.

    The early batches are returned if they are fewer or read from fewer other batches; otherwise the
    late ones.

    Args:
        early, late: (n,), batches of the vertices.
        change: difference between the two, from move_early.
    """
    is_early = change == FEWER
    if change == MOVED:
        n_early_sources, n_late_sources = count_sources(early, late, n_batches, arg_start, args)
        is_early = n_early_sources < n_late_sources
    return early if is_early else late


@helper
def move_early(
    late: Ints, type_of: Ints, n_types: int, types: Ints, arg_start: Ints, args: Ints
) -> tuple[Ints, int]:
    """Move vertices to earlier batches of their types, and remove batches that are not needed.

    Args:
        late: (n,), batch of each vertex, the latest possible.
        type_of: (n_batches,), types of batches.

    Returns:
        the batches (n,), of which removed ones are empty, and SAME, MOVED or FEWER.
    """
    n_batches = len(type_of)
    kept = np.ones(n_batches, np.bool_)
    early = find_earliest(kept, type_of, n_types, late, types, arg_start, args)
    n_bound, n_bound_vertices = find_bound(early, late, kept)
    if n_bound == n_batches:
        return early, SAME if n_bound_vertices == len(types) else MOVED
    if has_unflagged(early, kept):
        early = find_earliest(kept, type_of, n_types, late, types, arg_start, args)
    return early, FEWER


@helper
def count_sources(
    early: Ints, late: Ints, n_batches: int, arg_start: Ints, args: Ints
) -> tuple[int, int]:
    """Return the number of (batch, batch it reads from) pairs for two assignments of batches.

    The numbers are exact up to 1024 batches. For more, a few pairs share a bit and count once, in
    both assignments.

    Args:
        early, late: (n,), batches of the vertices.
    """
    n_words = min(n_batches * n_batches, MAX_PAIRS) // WORD + 1
    early_bits, late_bits = np.zeros(n_words, np.uint64), np.zeros(n_words, np.uint64)
    n_early = n_late = 0
    for v in range(len(early)):
        early_pairs, late_pairs = early[v] * n_batches, late[v] * n_batches
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            n_early += _is_new(early_bits, early_pairs + early[arg])
            n_late += _is_new(late_bits, late_pairs + late[arg])
    return n_early, n_late


@helper
def _is_new(met: NDArray[np.uint64], pair: int) -> int:
    """Set the bit of a pair; return 1 if it was not set before, otherwise 0."""
    position = np.uint64(pair & (MAX_PAIRS - 1))
    word, bit = position // np.uint64(WORD), np.uint64(1) << position % np.uint64(WORD)
    if met[word] & bit:
        return 0
    met[word] |= bit
    return 1


@helper
def find_bound(early: Ints, late: Ints, bound: Flags) -> tuple[int, int]:
    """Set flags for the batches that have a vertex whose earliest batch is its latest.

    Args:
        early, late: (n,), batches of the vertices.
        bound: (n_batches,), written.

    Returns:
        the number of such batches, and the number of bound vertices.
    """
    bound[:] = False
    n_vertices = 0
    for v in range(len(early)):
        if early[v] == late[v]:
            bound[late[v]] = True
            n_vertices += 1
    return int(bound.sum()), n_vertices


@helper
def has_unflagged(batch_of: Ints, kept: Flags) -> bool:
    """Return True if a vertex's batch (n,) is not flagged in `kept` (n_batches,)."""
    n_others = 0
    for v in range(len(batch_of)):
        n_others += not kept[batch_of[v]]
    return n_others > 0


@helper
def find_earliest(
    kept: Flags, type_of: Ints, n_types: int, late: Ints, types: Ints, arg_start: Ints, args: Ints
) -> Ints:
    """Return the first flagged batch (n,) of each vertex that is after its arguments' batches.

    If that batch is later than the vertex's latest one, the latest is flagged again: a vertex is
    never later than that, and its users fit, too. Unbatchable vertices keep their batches.

    Args:
        kept: (n_batches,), flags; those of batches of unbatchable vertices are set.
        type_of: (n_batches,), types of batches.
        late: (n,), the latest batches, for the case that all are flagged.
    """
    next_of = _find_next(kept, type_of, n_types)
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
def _find_next(kept: Flags, type_of: Ints, n_types: int) -> IntTable:
    """Return at [t, b] the first flagged batch from b on that has type t; n_batches: none.

    The table has one row per type, as a vertex's type is known before its first batch, which
    depends on the previous vertex.
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
