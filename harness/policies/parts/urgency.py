"""Urgency of ready types, for a schedule that is made from the outputs back.

A vertex is ready once all its users are placed; levels are those of chains.py. As levels never
rise from a vertex to its arguments, the longest chain of type k that remains, D_k, is the highest
level of k that a ready vertex is on. A ready type that reaches D_k *holds* k: as long as it waits,
no batch of k can shorten that chain, unless it is k itself and holds it alone, which is progress.
Types that reach less high hold less of it. A type's score is

    OTHERS * mean over k of (cost of k * the type's part of what is held of k, but of its own)
    + cost of the type * (OWN * its part of what is held of its own + PROGRESS if it makes some)
    + READY * the part of its remaining vertices that is ready
    - COST * cost of the type  +  WAIT * batches that it has been ready for, at most MOST_WAIT

where a type costs the batches that one choice of it makes, over the cost of the dearest type. A
decision is O(k * types), and a vertex O(k). The functions get the arrays that they use and no tuple
of the whole state, which numba would copy, and count references of, at every call.
"""

from __future__ import annotations

import numpy as np

from harness.machine.compiled import compiled
from harness.policies.parts.ready import (
    Ints,
)
from harness.values.graph import NO_TYPE, UNBATCHABLE

# Round numbers near the best of a random search on graphs of training files (docs).
OTHERS, OWN, PROGRESS, READY, COST, WAIT, MOST_WAIT = 3.0, 0.5, 1.0, 0.75, 2.0, 0.1, 6
HELD = (1.0, 0.5, 0.25, 0.125)  # by a type that reaches D_k, D_k - 1, ...
NONE = -1


@compiled
def raise_reach(reach: Ints, level: Ints, vertices: Ints) -> None:
    """Take vertices that became ready into the highest levels of their type, reach (k,)."""
    for v in vertices:
        for k in range(len(reach)):
            reach[k] = max(reach[k], level[v, k])


@compiled
def is_progress(k: int, own: int, reach: Ints) -> bool:
    """Whether type own, the k-th chained one, alone holds its longest remaining chain."""
    highest = reach[own, k]
    for t in range(len(reach)):
        if t != own and reach[t, k] >= highest:
            return False
    return bool(highest > 0)


@compiled
def most_urgent(
    chained: Ints, reach: Ints, head: Ints, tail: Ints, end: Ints, wait: Ints, cost: np.ndarray,
    active: Ints, score: np.ndarray, held: np.ndarray, others: np.ndarray,
) -> int:  # fmt: skip
    """Return a chained type that is safe, or else the ready type of the highest score.

    Safe by the sufficient condition of Chen et al., ICML 2023, Sec. 2.3: no ready vertex of another
    type has a vertex of the type behind it, so that all of them are behind ready ones of their own.

    chained (k,): the chained types. reach (n_types, k): the highest levels that ready vertices of
        every type are on, NONE where there are none.
    head, tail, end (n_types,): a type has tail - head ready vertices, and end - head remaining.
    wait (n_types,): batches that each has been ready for. cost (n_types,): see above.
    active, held, others (n_types,): scratch. score (n_types,): set to the scores of ready types,
        infinity for a safe one.
    """
    ready = active[: _ready_types(head, tail, active)]
    for t in ready:
        others[t] = 0.0
        part = (tail[t] - head[t]) / (end[t] - head[t])
        score[t] = READY * part - COST * cost[t] + WAIT * min(wait[t], MOST_WAIT)
    n_chains = 0
    for k in range(len(chained)):
        own = chained[k]
        longest, safe = _longest_chain(k, own, reach, ready)
        if safe:
            score[own] = np.inf
            return int(own)
        if longest > 0:
            n_chains += 1
            _share_out(k, own, longest, reach, ready, cost, held, score, others)
    best = ready[0]
    for t in ready:
        score[t] += OTHERS * others[t] / max(n_chains, 1)
        if score[t] > score[best]:
            best = t
    return int(best)


@compiled
def _longest_chain(k: int, own: int, reach: Ints, ready: Ints) -> tuple[int, bool]:
    """Return D_k, and whether only ready vertices of type own itself have one behind them."""
    longest, safe = 0, reach[own, k] > 0
    for t in ready:
        longest = max(longest, reach[t, k])
        safe = safe and (t == own or reach[t, k] == 0)
    return longest, safe


@compiled
def _share_out(
    k: int, own: int, longest: int, reach: Ints, ready: Ints, cost: np.ndarray, held: np.ndarray,
    score: np.ndarray, others: np.ndarray,
) -> None:  # fmt: skip
    """Add what ready types hold of the k-th chained type to its score and others' sums."""
    total = 0.0
    for t in ready:
        below = longest - reach[t, k]
        held[t] = HELD[below] if below < len(HELD) and reach[t, k] > 0 else 0.0
        total += held[t]
    for t in ready:
        if t == own:
            score[t] += OWN * cost[own] * held[t] / total
        else:
            others[t] += cost[own] * held[t] / total
    if is_progress(k, own, reach):
        score[own] += PROGRESS * cost[own]


@compiled
def _ready_types(head: Ints, tail: Ints, active: Ints) -> int:
    """Write the types that have ready vertices, in increasing order; return how many."""
    n_active = 0
    for t in range(UNBATCHABLE + 1, len(head)):
        if tail[t] > head[t]:
            active[n_active] = t
            n_active += 1
    return n_active


@compiled
def costs(types: Ints, follows: Ints) -> np.ndarray:
    """Return the batches that one choice of each type makes, relative to the dearest type."""
    present = np.zeros(len(follows), np.bool_)
    for v in range(len(types)):
        present[types[v]] = True
    cost = np.ones(len(follows))
    for t in range(len(follows)):
        if follows[t] != NO_TYPE and present[t]:
            cost[follows[t]] += 1
    dearest = 1.0
    for t in range(len(cost)):
        dearest = max(dearest, cost[t])
    for t in range(len(cost)):
        cost[t] /= dearest
    return cost
