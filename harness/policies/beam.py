"""Beam search from the outputs backwards, guided by the score of `critical_share`.

States are ranked by their batches beyond the lower bound, and by the scores of the types that they
did not choose. The search is too slow for use at run time: it shows how much a better choice could
gain.

Source: beam search (Lowerre, "The HARPY speech recognition system", 1976).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.policies.critical_share import schedule as critical_share
from dynbatch.harness.policies.parts.alignment import FEWER, move_early
from dynbatch.harness.policies.parts.backwards import (
    Placing,
    assign_batches,
    build_block_graph,
    find_blocks,
    insert_followers,
    place,
    start_placing,
)
from dynbatch.harness.policies.parts.chains import TypeChains, find_chains
from dynbatch.harness.policies.parts.urgency import (
    NONE,
    Known,
    Scratch,
    choose_type,
    compute_costs,
    is_progress,
    start_choosing,
)
from dynbatch.harness.values.arrays import Flags, Floats, FloatTable, Ints, IntTable, UnsignedLongs
from dynbatch.harness.values.graph import UNBATCHABLE, Graph
from dynbatch.harness.values.schedule import Schedule

POLICIES = {"beam_2": "schedule_by_2_states", "beam_20": "schedule_by_20_states"}
REGRET = 1.0  # batches per unit of a score not chosen; tuned like the weights in urgency.py


class Setting(NamedTuple):
    """Data that all states share; see urgency.py.

    Attributes:
        is_chained: (n_types,), True for chained types.
        cost: (n_types,), costs of the types.
    """

    types: Ints
    arg_start: Ints
    args: Ints
    chains: TypeChains
    is_chained: Flags
    cost: Floats
    scratch: Scratch


class State(NamedTuple):
    """Partial schedule, made from the outputs backwards.

    Attributes:
        spent: (2,), batches beyond the lower bound so far, and the regret of scores not chosen.
        placed: (1,), hash of the set of placed vertices.
    """

    placing: Placing
    known: Known
    spent: Floats
    placed: UnsignedLongs


class Beam(NamedTuple):
    """Buffers for several states: the arrays of State with an additional first dimension."""

    n_users: IntTable
    queue: IntTable
    head: IntTable
    tail: IntTable
    seen: IntTable
    wait: IntTable
    reach: Annotated[NDArray[np.uint16], 3]
    spent: FloatTable
    placed: UnsignedLongs


class BeamChildren(NamedTuple):
    """Candidates for the next beam; the first n entries are used.

    Attributes:
        parent, t, key, spent, placed: parent state, type, key, spent and hash of each candidate.
    """

    parent: Ints
    t: Ints
    key: Floats
    spent: FloatTable
    placed: UnsignedLongs


def schedule_by_2_states(graph: Graph) -> Schedule:
    """Place batches from the last to the first, never more of them than `critical_share`."""
    return _search(graph, 2)


def schedule_by_20_states(graph: Graph) -> Schedule:
    """Place batches from the last to the first, never more of them than `critical_share`."""
    return _search(graph, 20)


def _search(graph: Graph, width: int) -> Schedule:
    """Return the better schedule of a beam search of this width and of `critical_share`."""
    arrays = graph.types, graph.arg_start, graph.args, graph.follows
    greedy, searched = (
        critical_share(graph),
        Schedule.from_valid_arrays(*_compute_batches(*arrays, width)),
    )
    return searched if searched.n_batches < greedy.n_batches else greedy


@compiled
def _compute_batches(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, width: int
) -> tuple[Ints, Ints]:
    cost = compute_costs(types, follows)
    block = find_blocks(types, arg_start, args, follows)
    block_types, block_start, block_args, old_id = build_block_graph(types, arg_start, args, block)
    sequence = _find_best_sequence(block_types, block_start, block_args, cost, width)
    late, type_of = _place_in_sequence(block_types, block_start, block_args, sequence, len(follows))
    early, change = move_early(late, type_of, len(follows), block_types, block_start, block_args)
    batches = early if change == FEWER else late
    return insert_followers(types, follows, block, old_id, batches, len(sequence))


@helper
def _place_in_sequence(
    types: Ints, arg_start: Ints, args: Ints, sequence: Ints, n_types: int
) -> tuple[Ints, Ints]:
    """Return each vertex's batch (n,), and the batches' types, if types are placed in sequence."""
    n_users, n_of_type, _ = find_chains(types, arg_start, args, n_types)
    placing = start_placing(types, n_users, n_of_type)
    sizes = np.empty_like(sequence)
    for b in range(len(sequence)):
        sizes[b] = place(placing, sequence[b], types, arg_start, args)
    return assign_batches(placing, sequence, sizes)


@helper
def _find_best_sequence(types: Ints, arg_start: Ints, args: Ints, cost: Floats, width: int) -> Ints:
    """Return the types of the batches, last batch first, of the first state that is complete."""
    n, n_types = len(types), len(cost)
    n_users, n_of_type, chains = find_chains(types, arg_start, args, n_types)
    placing = start_placing(types, n_users, n_of_type)
    known, scratch = start_choosing(placing, chains)
    is_chained = np.zeros(n_types, np.bool_)
    for t in chains.chained:
        is_chained[t] = True
    setting = Setting(types, arg_start, args, chains, is_chained, cost, scratch)
    beam, following = _allocate_beam(width, placing, known), _allocate_beam(width, placing, known)
    first = placing.first
    _copy(State(placing, known, np.zeros(2), np.zeros(1, np.uint64)), _view_state(beam, 0, first))
    children, kept = _allocate_children(width * n_types), np.empty(width, np.int32)
    parents, chosen = np.empty((n, width), np.int32), np.empty((n, width), np.int32)
    depth, n_states = 0, 1
    finished = NONE if n > 0 else 0
    while finished == NONE:
        n_children = 0
        for parent in range(n_states):
            n_children = _expand(
                _view_state(beam, parent, first), parent, setting, children, n_children
            )
        n_states = _select_children(children, n_children, kept)
        for rank in range(n_states - 1, -1, -1):
            parent, t = children.parent[kept[rank]], children.t[kept[rank]]
            state = _view_state(following, rank, first)
            _copy(_view_state(beam, parent, first), state)
            _advance(state, children, kept[rank], setting)
            parents[depth, rank], chosen[depth, rank] = parent, t
            if _count_placed(state.placing) == n:
                finished = rank
        beam, following = following, beam
        depth += 1
    return _trace(parents, chosen, depth, finished)


@helper
def _trace(parents: IntTable, chosen: IntTable, depth: int, rank: int) -> Ints:
    """Return the choices that led to the state with this rank in the last beam."""
    sequence = np.empty(depth, np.int32)
    for step in range(depth - 1, -1, -1):
        sequence[step] = chosen[step, rank]
        rank = parents[step, rank]
    return sequence


@helper
def _allocate_beam(width: int, placing: Placing, known: Known) -> Beam:
    n, n_types = len(placing.queue), len(placing.head)
    return Beam(
        np.empty((width, n), np.int32), np.empty((width, n), np.int32),
        np.empty((width, n_types), np.int32), np.empty((width, n_types), np.int32),
        np.empty((width, n_types), np.int32), np.empty((width, n_types), np.int32),
        np.empty((width, n_types, known.reach.shape[1]), np.uint16),
        np.empty((width, 2)), np.empty(width, np.uint64),
    )  # fmt: skip


@helper
def _allocate_children(most: int) -> BeamChildren:
    return BeamChildren(
        np.empty(most, np.int32), np.empty(most, np.int32),
        np.empty(most), np.empty((most, 2)), np.empty(most, np.uint64),
    )  # fmt: skip


@helper
def _view_state(beam: Beam, k: int, first: Ints) -> State:
    """Return a view of the k-th state."""
    return State(
        Placing(beam.n_users[k], beam.queue[k], first, beam.head[k], beam.tail[k]),
        Known(beam.seen[k], beam.wait[k], beam.reach[k]),
        beam.spent[k],
        beam.placed[k : k + 1],
    )


@helper
def _copy(source: State, to: State) -> None:
    to.placing.n_users[:] = source.placing.n_users
    to.placing.queue[:] = source.placing.queue
    to.placing.head[:] = source.placing.head
    to.placing.tail[:] = source.placing.tail
    to.known.seen[:] = source.known.seen
    to.known.wait[:] = source.known.wait
    to.known.reach[:] = source.known.reach
    to.spent[:] = source.spent
    to.placed[:] = source.placed


@helper
def _advance(state: State, children: BeamChildren, child: int, setting: Setting) -> None:
    """Place all ready vertices of a child's type; the state is a copy of the parent's."""
    t = children.t[child]
    state.spent[:] = children.spent[child]
    state.placed[0] = children.placed[child]
    state.known.reach[t] = 0
    place(state.placing, t, setting.types, setting.arg_start, setting.args)


@helper
def _count_placed(placing: Placing) -> int:
    n_placed = 0
    for t in range(len(placing.head)):
        n_placed += placing.head[t] - placing.first[t]
    return n_placed


@helper
def _expand(state: State, parent: int, setting: Setting, children: BeamChildren, n: int) -> int:
    """Append the children of a state; return the number of children so far."""
    placing, cost, score = state.placing, setting.cost, setting.scratch.score
    best = _choose_type(state, setting)
    for t in range(len(cost)):
        size = placing.tail[t] - placing.head[t]
        if size == 0 or (t != best and score[best] == np.inf):
            continue
        children.parent[n], children.t[n] = parent, t
        children.spent[n] = state.spent
        if t != best:
            children.spent[n, 1] += score[best] - score[t]
        if t != UNBATCHABLE and not _is_progress(state, t, setting.is_chained):
            children.spent[n, 0] += cost[t]
        children.key[n] = children.spent[n, 0] + REGRET * children.spent[n, 1]
        children.placed[n] = state.placed[0]
        begin = placing.head[t]
        for v in placing.queue[begin : begin + (1 if t == UNBATCHABLE else size)]:
            children.placed[n] += _hash(v)
        n += 1
    return n


@helper
def _choose_type(state: State, setting: Setting) -> int:
    """Return the choice of `critical_share`; its score is infinite if no other needs a trial."""
    placing, scratch = state.placing, setting.scratch
    if placing.tail[UNBATCHABLE] > placing.head[UNBATCHABLE]:
        scratch.score[UNBATCHABLE] = np.inf
        return UNBATCHABLE
    return choose_type(placing, setting.chains, setting.cost, state.known, scratch)


@helper
def _is_progress(state: State, t: int, is_chained: Flags) -> bool:
    """Return True if a batch of a type lowers the bound of the remaining vertices."""
    if not is_chained[t]:
        return bool(state.placing.tail[t] == state.placing.first[t + 1])
    return is_progress(t, state.known.reach)


@helper
def _hash(v: int) -> np.uint64:
    """Mix the bits of a vertex id (splitmix64, Steele, Lea and Flood, OOPSLA 2014)."""
    x = (np.uint64(v) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@helper
def _select_children(children: BeamChildren, n: int, kept: Ints) -> int:
    """Write the children with the smallest keys; of children with equal vertices, only the best.

    Args:
        kept: (width,), written with the smallest key first; of equal keys the first child.

    Returns:
        the number of children written.
    """
    n_kept = 0
    for child in range(n):
        rank = 0
        while rank < n_kept and children.placed[kept[rank]] != children.placed[child]:
            rank += 1
        rank = min(rank, len(kept) - 1)  # for a new set of vertices: the last one is replaced
        if rank < n_kept and children.key[kept[rank]] <= children.key[child]:
            continue
        n_kept = max(n_kept, rank + 1)
        while rank > 0 and children.key[kept[rank - 1]] > children.key[child]:
            kept[rank] = kept[rank - 1]
            rank -= 1
        kept[rank] = child
    return n_kept
