"""Urgency of ready types, for a schedule that is made from the outputs backwards.

A vertex is ready once all its users are placed; levels are those of chains.py. Levels never rise
from a vertex to its arguments, so the longest remaining chain of type k, D_k, is the highest level
of k among ready vertices. A ready type that reaches D_k *holds* k: as long as it waits, no batch of
k can shorten that chain, unless the type is k itself and the only holder, which is progress. Types
that reach lower levels hold smaller fractions of it. A type's score is

    OTHERS * mean over k of (cost of k * the type's fraction of what is held of k, except its own)
    + cost of the type * (OWN * its fraction of what is held of its own + PROGRESS if it makes any)
    + READY * the fraction of its remaining vertices that is ready
    - COST * cost of the type  +  WAIT * batches that it has been ready for, at most MAX_WAIT

where the cost of a type is the number of batches that one choice of it makes, relative to the most
expensive type. A decision takes O(types * ready types), and a vertex O(types).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.lanes import (
    N_LANES,
    Rows,
    add_saturated,
    broadcast_number,
    load,
    multiply_lanes,
    shift_right,
    store,
    subtract_saturated,
    take_maximum,
    take_minimum,
)
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.policies.parts.backwards import Placing
from dynbatch.harness.policies.parts.chains import TypeChains, raise_reach
from dynbatch.harness.values.arrays import Floats, Ints
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE

# Round numbers near the optimum of a random search on graphs of training files (docs).
OTHERS, OWN, PROGRESS, READY, COST, WAIT, MAX_WAIT = 3.0, 0.5, 1.0, 0.75, 2.0, 0.1, 6
NONE = -1
LONGEST, N_ABOVE, N_LONGEST, HELD, N_COUNTS = range(5)  # counters of every chained type
WHOLE = 8  # the total of what is held, in eighths


class Known(NamedTuple):
    """Knowledge about ready vertices, which choices update.

    Attributes:
        seen: (n_types,), queue[head[t]:seen[t]] were ready at the last choice.
        wait: (n_types,), number of choices for which each type has been ready.
        reach: (n_types, columns), highest levels of the ready vertices of each type; 0 if none.
    """

    seen: Ints
    wait: Ints
    reach: Rows


class Scratch(NamedTuple):
    """Buffers of a choice.

    Attributes:
        active: (n_types,).
        counts: (N_COUNTS, columns).
        held: (n_types, columns).
        worth: (k,).
        score: (n_types,), scores of ready types; infinity for a safe one.
    """

    active: Ints
    counts: Rows
    held: Rows
    worth: Floats
    score: Floats


@helper
def start_choosing(placing: Placing, chains: TypeChains) -> tuple[Known, Scratch]:
    """Return the knowledge before the first choice, and buffers for all choices."""
    n_types, n_columns = len(placing.head), chains.short.shape[1]
    known = Known(
        placing.head.copy(),
        np.zeros(n_types, np.int32),
        np.zeros((n_types, n_columns), np.uint16),
    )
    scratch = Scratch(
        np.empty(n_types, np.int32),
        np.empty((N_COUNTS, n_columns), np.uint16),
        np.empty((n_types, n_columns), np.uint16),
        np.empty(len(chains.chained)),
        np.zeros(n_types),
    )
    return known, scratch


@helper
def is_progress(own: int, reach: Rows) -> bool:
    """Return True if a chained type is the only holder of its longest remaining chain."""
    highest = reach[own, own]
    for t in range(len(reach)):
        if t != own and reach[t, own] >= highest:
            return False
    return bool(highest > 0)


@helper
def choose_type(
    placing: Placing, chains: TypeChains, cost: Floats, known: Known, scratch: Scratch
) -> int:
    """Return a type that is safe, or otherwise the ready type with the highest score.

    A type is safe if all its remaining vertices are ready, or by the sufficient condition of Chen
    et al., ICML 2023, Sec. 2.3: no ready vertex of another type has an ancestor of this type, so
    all of its vertices are ready or ancestors of its own ready ones.

    Args:
        cost: (n_types,), see above.
    """
    _, queue, first, head, tail = placing
    seen, wait, reach = known
    active, counts, held, score = scratch.active, scratch.counts, scratch.held, scratch.score
    safe, n_ready = NONE, 0
    for t in range(UNBATCHABLE + 1, len(head)):
        if tail[t] == head[t]:
            continue
        active[n_ready] = t
        n_ready += 1
        wait[t] = wait[t] + 1 if seen[t] > head[t] else 0
        if tail[t] > seen[t]:
            raise_reach(reach, t, chains, queue[seen[t] : tail[t]])
            seen[t] = tail[t]
        if safe == NONE and tail[t] == first[t + 1]:
            safe = t
    ready = active[:n_ready]
    if safe == NONE:
        _count_reach(reach, ready, counts, held)
        safe = _find_unreached(chains.chained, reach, counts)
    if safe != NONE:
        score[safe] = np.inf
        return safe
    for t in ready:
        ready_part = (tail[t] - head[t]) / (first[t + 1] - head[t])
        score[t] = READY * ready_part - COST * cost[t] + WAIT * min(wait[t], MAX_WAIT)
    _add_parts(chains.chained, reach, ready, cost, scratch)
    best = ready[0]
    for t in ready:
        if score[t] > score[best]:
            best = t
    return int(best)


@helper
def _find_unreached(chained: Ints, reach: Rows, counts: Rows) -> int:
    """Return the first type that only its own ready vertices reach; NONE if there is none."""
    for t in chained:
        if counts[N_ABOVE, t] == 1 and reach[t, t] > 0:
            return int(t)
    return NONE


@helper
def _add_parts(chained: Ints, reach: Rows, ready: Ints, cost: Floats, scratch: Scratch) -> None:
    """Add to the scores of ready types the values of held chains and of progress."""
    _, counts, held, worth, score = scratch
    n_chains = 0
    for k in range(len(chained)):
        own = chained[k]
        longest = counts[LONGEST, own]
        n_chains += longest > 0
        worth[k] = cost[own] / max(counts[HELD, own], 1)
        if reach[own, own] > 0:
            score[own] += OWN * (worth[k] * held[own, own])
            if reach[own, own] == longest and counts[N_LONGEST, own] == 1:
                score[own] += PROGRESS * cost[own]
    for t in ready:
        others = 0.0
        for k in range(len(chained)):
            others += 0.0 if chained[k] == t else worth[k] * held[t, chained[k]]
        score[t] += OTHERS * others / max(n_chains, 1)


@helper
def _count_reach(reach: Rows, ready: Ints, counts: Rows, held: Rows) -> None:
    """Set for every chained type D_k, how many ready types reach k and D_k, and what is held.

    A type that reaches D_k holds all of it, and half as much for every level below.
    """
    for column in range(0, reach.shape[1], N_LANES):
        longest, n_above = broadcast_number(reach, 0), broadcast_number(reach, 0)
        for t in ready:
            reached = load(reach, t, column)
            longest = take_maximum(longest, reached)
            n_above = add_saturated(n_above, take_minimum(reached, broadcast_number(reach, 1)))
        n_longest, all_held = broadcast_number(reach, 0), broadcast_number(reach, 0)
        for t in ready:
            reached = load(reach, t, column)
            below = subtract_saturated(longest, reached)
            n_longest = add_saturated(
                n_longest, subtract_saturated(broadcast_number(reach, 1), below)
            )
            whole = multiply_lanes(
                broadcast_number(reach, WHOLE), take_minimum(reached, broadcast_number(reach, 1))
            )
            part = shift_right(whole, below)
            all_held = add_saturated(all_held, part)
            store(held, t, column, part)
        store(counts, LONGEST, column, longest)
        store(counts, N_ABOVE, column, n_above)
        store(counts, N_LONGEST, column, n_longest)
        store(counts, HELD, column, all_held)


@helper
def compute_costs(types: Ints, follows: Ints) -> Floats:
    """Return the number of batches per choice of each type, relative to the most expensive type."""
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
