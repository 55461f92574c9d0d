"""Beam search from the outputs back, with the score of `critical_share` to tell states apart.

What it costs makes it no policy for run time: it tells how much a better choice could still gain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.machine.compiled import compiled
from harness.machine.lanes import Rows, ShortRows
from harness.policies.parts.alignment import FEWER, as_early
from harness.policies.parts.backwards import Placing, batch_of_placed, place, start_placing
from harness.policies.parts.blocks import block_of, graph_of_blocks, with_followers
from harness.policies.parts.chains import chains_of
from harness.policies.parts.ready import Flags, Ids, Ints, without_sign
from harness.policies.parts.urgency import N_COUNTS, NONE, choice, costs, is_progress
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule

REGRET = 1.0  # batches that a unit of score passed over counts as; found as those of urgency.py


class Chains(NamedTuple):
    """Chained types (k,), whether each type is one (n_types,), and levels as in chains.py."""

    chained: Ids
    is_chained: Flags
    short: ShortRows
    long: Rows


class State(NamedTuple):
    """A schedule begun from the outputs; see urgency.py for reach, seen, wait and score.

    active (n_types,), counts (N_COUNTS, columns), held (n_types, columns), worth (k,): scratch of
        a choice.
    spent (2,): batches beyond the lower bound so far, and the regret over scores passed over.
    placed (1,): hash of the set of vertices that are placed.
    """

    placing: Placing
    reach: Rows
    seen: Ints
    wait: Ints
    score: np.ndarray
    active: Ids
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
    types, args = without_sign(graph.types), without_sign(graph.args)
    found = Schedule.proved(*_batches(types, graph.arg_start, args, graph.follows, width))
    return found if found.n_batches < greedy.n_batches else greedy


@compiled
def _batches(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, width: int
) -> tuple[Ints, Ints]:
    cost = costs(types, follows)
    block = block_of(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = graph_of_blocks(types, arg_start, args, block)
    sequence = _best_sequence(block_types, block_start, block_args, cost, width)
    late, type_of = _placed(block_types, block_start, block_args, sequence, len(follows))
    early, change = as_early(late, type_of, len(follows), block_types, block_start, block_args)
    batch_of = np.empty(len(types), np.int32)
    batch_of[old_id] = early if change == FEWER else late
    return with_followers(types, follows, block, batch_of[block], len(sequence))


@compiled
def _placed(
    types: Ints, arg_start: Ints, args: Ints, sequence: Ints, n_types: int
) -> tuple[Ints, Ints]:
    """Return the batch (n,) of every vertex if types are placed so, and the types of batches."""
    n_users, n_of_type, _, _, _ = chains_of(types, arg_start, args, n_types)
    _, queue, first, head, tail = start_placing(types, n_users, n_of_type)
    sizes = np.empty_like(sequence)
    for b in range(len(sequence)):
        sizes[b] = place(n_users, queue, head, tail, sequence[b], types, arg_start, args)
    return batch_of_placed(queue, first, sequence, sizes), sequence[::-1].copy()


@compiled
def _best_sequence(types: Ints, arg_start: Ints, args: Ints, cost: np.ndarray, width: int) -> Ints:
    """Return the types of the batches, from the last to the first, of the first state to finish."""
    n, n_types = len(types), len(cost)
    n_users, n_of_type, chained, short, long = chains_of(types, arg_start, args, n_types)
    placing = start_placing(types, n_users, n_of_type)
    is_chained = np.zeros(n_types, np.bool_)
    for t in chained:
        is_chained[t] = True
    chains = Chains(chained, is_chained, short, long)
    beam = [_first_state(placing, chains, n_types)]
    parents = np.empty((n, width), np.int32)
    chosen = np.empty((n, width), np.int32)
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
            n_children = _expand(beam[parent], parent, chains, cost, children, n_children)
        kept = _best_children(children, n_children, width)
        beam = [_child(beam, children, child, types, arg_start, args) for child in kept]
        for rank in range(len(kept) - 1, -1, -1):
            parents[depth, rank] = children.parent[kept[rank]]
            chosen[depth, rank] = children.t[kept[rank]]
            if _n_placed(beam[rank].placing) == n:
                finished = rank
        depth += 1
    return _trace(parents, chosen, depth, finished)


@compiled
def _trace(parents: Ints, chosen: Ints, depth: int, rank: int) -> Ints:
    """Return the choices that led to a place in the last beam."""
    sequence = np.empty(depth, np.int32)
    for step in range(depth - 1, -1, -1):
        sequence[step] = chosen[step, rank]
        rank = parents[step, rank]
    return sequence


@compiled
def _first_state(placing: Placing, chains: Chains, n_types: int) -> State:
    n_columns = chains.short.shape[1]
    return State(
        placing, np.zeros((n_types, n_columns), np.uint16), placing.head.copy(),
        np.zeros(n_types, np.int32), np.zeros(n_types), np.empty(n_types, np.uint32),
        np.empty((N_COUNTS, n_columns), np.uint16), np.empty((n_types, n_columns), np.uint16),
        np.empty(len(chains.chained)), np.zeros(2), np.zeros(1, np.uint64),
    )  # fmt: skip


@compiled
def _child(
    beam: list[State], children: Children, child: int, types: Ints, arg_start: Ints, args: Ints
) -> State:
    """Return what becomes of the parent's state when all ready vertices of a type are placed."""
    state = _copy(beam[children.parent[child]])
    t, placing = children.t[child], state.placing
    state.spent[:] = children.spent[child]
    state.placed[0] = children.placed[child]
    state.reach[t] = 0
    place(
        placing.n_users, placing.queue, placing.head, placing.tail, t, types, arg_start, args
    )  # fmt: skip
    return state


@compiled
def _copy(state: State) -> State:
    p = state.placing
    placing = Placing(p.n_users.copy(), p.queue.copy(), p.first, p.head.copy(), p.tail.copy())
    return State(
        placing, state.reach.copy(), state.seen.copy(), state.wait.copy(), state.score,
        state.active, state.counts, state.held, state.worth, state.spent.copy(),
        state.placed.copy(),
    )  # fmt: skip


@compiled
def _n_placed(placing: Placing) -> int:
    n_placed = 0
    for t in range(len(placing.head)):
        n_placed += placing.head[t] - placing.first[t]
    return n_placed


@compiled
def _expand(
    state: State, parent: int, chains: Chains, cost: np.ndarray, children: Children, n: int
) -> int:
    """Append the children of a state; return the number of children so far."""
    placing, score = state.placing, state.score
    best = _best_type(state, chains, cost)
    for t in range(len(cost)):
        size = placing.tail[t] - placing.head[t]
        if size == 0 or (t != best and score[best] == np.inf):
            continue
        children.parent[n], children.t[n] = parent, t
        children.spent[n] = state.spent
        if t != best:
            children.spent[n, 1] += score[best] - score[t]
        if t != UNBATCHABLE and not _progress(state, t, chains):
            children.spent[n, 0] += cost[t]
        children.key[n] = children.spent[n, 0] + REGRET * children.spent[n, 1]
        children.placed[n] = state.placed[0]
        begin = placing.head[t]
        for v in placing.queue[begin : begin + (1 if t == UNBATCHABLE else size)]:
            children.placed[n] += _hash(v)
        n += 1
    return n


@compiled
def _best_type(state: State, chains: Chains, cost: np.ndarray) -> int:
    """Return what `critical_share` takes, its score infinite if nothing else need be tried."""
    _, queue, first, head, tail = state.placing
    if tail[UNBATCHABLE] > head[UNBATCHABLE]:
        state.score[UNBATCHABLE] = np.inf
        return UNBATCHABLE
    return choice(
        chains.chained, chains.short, chains.long, queue, head, tail, first[1:], state.seen,
        state.wait, state.reach, cost, state.active, state.counts, state.held, state.worth,
        state.score,
    )  # fmt: skip


@compiled
def _progress(state: State, t: int, chains: Chains) -> bool:
    """Whether a batch of a type lowers the bound of what remains."""
    if not chains.is_chained[t]:
        return bool(state.placing.tail[t] == state.placing.first[t + 1])
    return is_progress(t, state.reach)


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
