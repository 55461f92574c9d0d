"""Urgency of ready types, for a schedule that is made from the outputs back.

A vertex is ready once all its users are placed. Each chained type k has one claim to give away: to
the ready vertices, of whatever type, above which the longest remaining chain of k still lies whole
(and, discounted, those above which only one of the last but one length does). As long as one of
them waits, no batch of k can shorten that chain. A type's score is

    sum over k of  weight * cost of k * share of k's claim    (weight OWN for k itself, else CROSS)
    - COST * cost of the type  +  WAIT * batches that it has been ready for, at most MOST_WAIT

where a type costs the batches that one choice of it makes, over the cost of the dearest type.
Counts of ready vertices by type and level (rows, see _chains.py) make a decision O(k * types), and
a vertex O(k). The functions get the arrays that they use and no tuple of the whole state, which
numba would copy, and count references of, at every call.
"""

from __future__ import annotations

import numpy as np

from harness.graph import UNBATCHABLE
from harness.policies._compiled import compiled
from harness.policies._ready import Ints

# Round numbers near the best of a random search on lattices and two-type trees of training files.
OWN, CROSS, DISCOUNT, COST, WAIT, MOST_WAIT = 1.0, 0.7, 0.1, 1.5, 0.05, 10
NONE = -1


@compiled
def own_rows(types: Ints, column: Ints, level: Ints, first: Ints) -> Ints:
    """Return how many vertices of its own type each row holds."""
    remaining = np.zeros(first[len(first) - 1], np.int32)
    for v in range(len(types)):
        own = column[types[v]]
        if own >= 0:
            remaining[first[own] + level[v, own]] += 1
    return remaining


@compiled
def count(waiting: Ints, level: Ints, first: Ints, vertices: Ints) -> None:
    """Add ready vertices of a type to its counts, waiting (rows,)."""
    for v in vertices:
        for k in range(level.shape[1]):
            waiting[first[k] + level[v, k]] += 1


@compiled
def forget(waiting: Ints, level: Ints, first: Ints, vertices: Ints) -> None:
    """Clear a type's counts, which are those of these vertices."""
    if len(vertices) * level.shape[1] > len(waiting):
        waiting[:] = 0
        return
    for v in vertices:
        for k in range(level.shape[1]):
            waiting[first[k] + level[v, k]] = 0


@compiled
def shorten(remaining: Ints, top: Ints, lowest: int, own: int, level: Ints, vertices: Ints) -> None:
    """Take placed vertices of a chained type from its rows, and lower the top row to what remains.

    own: the type's place among the chained ones; lowest: the row of its level 0.
    """
    for v in vertices:
        remaining[lowest + level[v, own]] -= 1
    while top[own] > lowest and remaining[top[own]] == 0:
        top[own] -= 1


@compiled
def most_urgent(
    chained: Ints, first: Ints, top: Ints, waiting: Ints, size: Ints, wait: Ints,
    cost: np.ndarray, active: Ints, score: np.ndarray,
) -> int:  # fmt: skip
    """Return a chained type that is safe, or else the ready type of the highest score.

    Safe by the sufficient condition of Chen et al., ICML 2023: all ready vertices of
    other types are on level 0, so that every vertex of the type is behind a ready one of the same.

    chained (k,): the chained types; first (k + 1,), top (k,): rows of their levels 0 and of their
        longest remaining chains.
    waiting (n_types, rows), size (n_types,): ready vertices of every type, by row and in all.
    wait (n_types,): batches that each has been ready for. cost (n_types,): see above.
    active (n_types,): scratch. score (n_types,): set to the scores of ready types, infinity for a
        safe one.
    """
    n_active = 0
    for t in range(UNBATCHABLE + 1, len(size)):
        if size[t] > 0:
            score[t] = WAIT * min(wait[t], MOST_WAIT) - COST * cost[t]
            active[n_active] = t
            n_active += 1
    for k in range(len(top)):
        own, row = chained[k], top[k]
        if row == first[k]:
            continue
        discount = DISCOUNT if row - 1 > first[k] else 0.0
        total = 0.0
        reaching = waiting[own, first[k]] - size[own]
        for t in active[:n_active]:
            total += waiting[t, row] + discount * waiting[t, row - 1]
            reaching += size[t] - waiting[t, first[k]]
        if size[own] > 0 and reaching == 0:
            score[own] = np.inf
            return int(own)
        claim = cost[own] / total
        for t in active[:n_active]:
            weight = OWN if t == own else CROSS
            score[t] += weight * claim * (waiting[t, row] + discount * waiting[t, row - 1])
    return _first_best(active, n_active, score)


@compiled
def _first_best(active: Ints, n_active: int, score: np.ndarray) -> int:
    best = active[0]
    for t in active[1:n_active]:
        if score[t] > score[best]:
            best = t
    return int(best)
