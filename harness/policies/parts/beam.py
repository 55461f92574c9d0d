"""Beam search from the outputs back, with the score of `critical_share` to tell states apart.

What it costs makes it no policy for run time: it tells how much a better choice could still gain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.machine.compiled import compiled
from harness.machine.lanes import Rows
from harness.policies.parts.alignment import as_early
from harness.policies.parts.blocks import block_of, graph_of_blocks, with_followers
from harness.policies.parts.chains import chains_of
from harness.policies.parts.ready import (
    N_EXECUTED,
    Ints,
    Ready,
    commit,
    n_ready,
    start_from_outputs,
)
from harness.policies.parts.urgency import (
    N_COUNTS,
    NONE,
    costs,
    is_progress,
    most_urgent,
    raise_reach,
)
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule

REGRET = 1.0  # batches that a unit of score passed over counts as; found as those of urgency.py


class Chains(NamedTuple):
    """Chained types (k,), the place of each type among them (-1: none), levels (n, columns)."""

    chained: Ints
    column: Ints
    level: Rows


class State(NamedTuple):
    """A schedule begun from the outputs; see urgency.py for reach, wait and score.

    seen (n_types,): ready.queue[ready.head[t]:seen[t]] were ready before the last batch.
    counts (N_COUNTS, columns), held (n_types, columns), worth (k,): scratch of most_urgent.
    spent (2,): batches beyond the lower bound so far, and the regret over scores passed over.
    placed (1,): hash of the set of vertices that are placed.
    """

    ready: Ready
    reach: Rows
    seen: Ints
    wait: Ints
    score: np.ndarray
    counts: Rows
    held: Rows
    worth: np.ndarray
    spent: np.ndarray
    placed: np.ndarray


class Children(NamedTuple):
    """Candidates for the next beam: parent, type, key, spent and hash of each, for the first n."""

    parent: Ints
    t: Ints
    key: np.ndarray
    spent: np.ndarray
    placed: np.ndarray


def search(graph: Graph, width: int, greedy: Schedule) -> Schedule:
    """Return the better of what a beam of that width finds and `greedy`, critical_share's."""
    found = Schedule(*_batches(graph.types, graph.arg_start, graph.args, graph.follows, width))
    return found if found.n_batches < greedy.n_batches else greedy


@compiled
def _batches(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, width: int
) -> tuple[Ints, Ints]:
    cost = costs(types, follows)
    block = block_of(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = graph_of_blocks(types, arg_start, args, block)
    ready = start_from_outputs(block_types, block_start, block_args, len(follows))
    sequence = _best_sequence(block_types, block_start, block_args, cost, width)
    for t in sequence:
        commit(ready, t)
    late, type_of = ready.batch_of, sequence[::-1].copy()
    for v in range(len(late)):
        late[v] = len(sequence) - 1 - late[v]
    early, n_early = as_early(
        late, type_of, len(follows), block_types, block_start, block_args
    )  # fmt: skip
    batch_of = np.empty(len(types), np.int32)
    batch_of[old_id] = early if n_early < len(sequence) else late
    return with_followers(types, follows, block, batch_of[block], n_early)


@compiled
def _best_sequence(types: Ints, arg_start: Ints, args: Ints, cost: np.ndarray, width: int) -> Ints:
    """Return the types of the batches, from the last to the first, of the first state to finish."""
    n, n_types = len(types), len(cost)
    chained, level = chains_of(types, arg_start, args, n_types)
    chains = _with_columns(chained, level, n_types)
    beam = [_first_state(types, arg_start, args, chains, n_types)]
    parents = np.empty((n, width), np.int32)
    chosen = np.empty((n, width), np.int32)
    active = np.empty(n_types, np.int32)
    children = Children(
        np.empty(width * n_types, np.int32), np.empty(width * n_types, np.int32),
        np.empty(width * n_types), np.empty((width * n_types, 2)),
        np.empty(width * n_types, np.uint64),
    )  # fmt: skip
    depth = 0
    finished = NONE if n > 0 else 0
    while finished == NONE:
        n_children = 0
        for parent in range(len(beam)):
            n_children = _expand(beam[parent], parent, chains, cost, active, children, n_children)
        kept = _best_children(children, n_children, width)
        beam = [_child(beam, children, kept[place]) for place in range(len(kept))]
        for place in range(len(kept) - 1, -1, -1):
            parents[depth, place] = children.parent[kept[place]]
            chosen[depth, place] = children.t[kept[place]]
            if beam[place].ready.counts[N_EXECUTED] == n:
                finished = place
        depth += 1
    return _trace(parents, chosen, depth, finished)


@compiled
def _trace(parents: Ints, chosen: Ints, depth: int, place: int) -> Ints:
    """Return the choices that led to a place in the last beam."""
    sequence = np.empty(depth, np.int32)
    for step in range(depth - 1, -1, -1):
        sequence[step] = chosen[step, place]
        place = parents[step, place]
    return sequence


@compiled
def _with_columns(chained: Ints, level: Rows, n_types: int) -> Chains:
    column = np.full(n_types, np.int32(NONE))
    for k in range(len(chained)):
        column[chained[k]] = k
    return Chains(chained, column, level)


@compiled
def _first_state(types: Ints, arg_start: Ints, args: Ints, chains: Chains, n_types: int) -> State:
    ready = start_from_outputs(types, arg_start, args, n_types)
    n_columns = chains.level.shape[1]
    return State(
        ready, np.zeros((n_types, n_columns), np.uint16), ready.head.copy(),
        np.zeros(n_types, np.int32), np.zeros(n_types), np.empty((N_COUNTS, n_columns), np.uint16),
        np.empty((n_types, n_columns), np.uint16), np.empty(len(chains.chained)),
        np.zeros(2), np.zeros(1, np.uint64),
    )  # fmt: skip


@compiled
def _child(beam: list[State], children: Children, child: int) -> State:
    """Return what becomes of the parent's state when all ready vertices of a type are placed."""
    state = _copy(beam[children.parent[child]])
    t = children.t[child]
    state.spent[:] = children.spent[child]
    state.placed[0] = children.placed[child]
    state.reach[t] = 0
    commit(state.ready, t)
    return state


@compiled
def _copy(state: State) -> State:
    r = state.ready
    ready = Ready(
        r.types, r.user_start, r.users, r.missing.copy(), r.queue.copy(), r.first, r.head.copy(),
        r.tail.copy(), r.since.copy(), r.leader, r.followers, r.batch_of, r.counts.copy(),
    )  # fmt: skip
    return State(
        ready, state.reach.copy(), state.seen.copy(), state.wait.copy(), state.score,
        state.counts, state.held, state.worth, state.spent.copy(), state.placed.copy(),
    )  # fmt: skip


@compiled
def _expand(
    state: State, parent: int, chains: Chains, cost: np.ndarray, active: Ints, children: Children,
    n: int,
) -> int:  # fmt: skip
    """Append the children of a state; return the number of children so far."""
    ready, score = state.ready, state.score
    best = _best_type(state, chains, cost, active)
    for t in range(len(cost)):
        if n_ready(ready, t) == 0 or (t != best and score[best] == np.inf):
            continue
        children.parent[n], children.t[n] = parent, t
        children.spent[n] = state.spent
        if t != best:
            children.spent[n, 1] += score[best] - score[t]
        if t != UNBATCHABLE and not _progress(state, t, chains):
            children.spent[n, 0] += cost[t]
        children.key[n] = children.spent[n, 0] + REGRET * children.spent[n, 1]
        children.placed[n] = state.placed[0]
        size = 1 if t == UNBATCHABLE else n_ready(ready, t)
        for v in ready.queue[ready.head[t] : ready.head[t] + size]:
            children.placed[n] += _hash(v)
        n += 1
    return n


@compiled
def _best_type(state: State, chains: Chains, cost: np.ndarray, active: Ints) -> int:
    """Return what `critical_share` takes, its score infinite if nothing else need be tried."""
    ready, score, seen = state.ready, state.score, state.seen
    if n_ready(ready, UNBATCHABLE) > 0:
        score[UNBATCHABLE] = np.inf
        return UNBATCHABLE
    head, tail, end = ready.head, ready.tail, ready.first[1:]
    safe = NONE
    for t in range(UNBATCHABLE + 1, len(cost)):
        state.wait[t] = state.wait[t] + 1 if seen[t] > head[t] else 0
        raise_reach(state.reach, t, chains.level, ready.queue[seen[t] : tail[t]])
        seen[t] = tail[t]
        if tail[t] > head[t] and tail[t] == end[t] and safe == NONE:
            safe = t
            score[t] = np.inf
    if safe != NONE:
        return safe
    return most_urgent(
        chains.chained, state.reach, head, tail, end, state.wait, cost, active, score,
        state.counts, state.held, state.worth,
    )  # fmt: skip


@compiled
def _progress(state: State, t: int, chains: Chains) -> bool:
    """Whether a batch of a type lowers the bound of what remains."""
    k = chains.column[t]
    if k == NONE:
        return bool(state.ready.tail[t] == state.ready.first[t + 1])
    return is_progress(k, t, state.reach)


@compiled
def _hash(v: int) -> np.uint64:
    """Mix the bits of a vertex id (splitmix64, Steele, Lea and Flood, OOPSLA 2014)."""
    x = (np.uint64(v) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _best_children(children: Children, n: int, width: int) -> Ints:
    """Return the children of least key, of those with equal vertices placed only the first."""
    kept = np.empty(min(n, width), np.int32)
    n_kept = 0
    for child in np.argsort(children.key[:n], kind="mergesort"):
        seen = False
        for other in kept[:n_kept]:
            seen = seen or children.placed[other] == children.placed[child]
        if not seen:
            kept[n_kept] = child
            n_kept += 1
            if n_kept == width:
                break
    return kept[:n_kept]
