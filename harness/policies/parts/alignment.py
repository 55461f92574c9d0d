"""Early or late: where the vertices of a schedule go that may go into several of its batches.

A schedule that was made from the outputs back puts every vertex as late as it can. Trees are read
with few copies so, for both children of a vertex were computed just before it. Sentences are not:
those that are short join the others in the middle, and their states come from elsewhere, whereas
side by side from the first word on they are read as they lie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.compiler.registry import helper
from harness.policies.parts.dispensable import earliest_in, find_bound, use_others
from harness.values.arrays import Ints

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
