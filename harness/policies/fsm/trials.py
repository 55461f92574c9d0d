"""ED-Batch's batching loop, and trials of tabular N-step Q-learning over it.

`run` follows a learned choice for every state, and a fallback for new ones (Alg. 1). A trial makes
one schedule; then one update uses the decisions that it visited.

A reward depends on a fraction of |F(G^t)|, counted by nearest vertices of the same type (the
release's typewise_init), which is fast if one graph is scheduled many times. N(u) contains the
descendants of u of its own type that are reached through other types only. A remaining vertex is in
F(G^t) if it is in the N of no remaining vertex. Finding N takes one search from every vertex; after
that, a whole schedule costs the sum of all |N(u)|.

Source: Chen et al., ICML 2023, Sec. 2.3, and their release, dynet/ooc-scheduler.cc (train).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.policies.agenda import compute_average_depths, find_shallowest
from dynbatch.harness.policies.fsm.states import (
    UNSEEN,
    States,
    add,
    count_actions,
    encode,
    find,
    make_states,
)
from dynbatch.harness.policies.parts.ready import (
    N_EXECUTED,
    Ready,
    commit,
    count_ready,
    find_users,
    finish,
    start,
)
from dynbatch.harness.policies.parts.segments import (
    add_batches,
    cut_arrays,
    select_part,
    start_batches,
)
from dynbatch.harness.policies.sufficient import Extracted, extract, find_safest, remove
from dynbatch.harness.values.arrays import Flags, FlagTable, Floats, Ints, UnsignedLongs
from dynbatch.harness.values.graph import UNBATCHABLE

LAST, AGENDA, SUFFICIENT = range(3)  # as in dynbatch.harness.contracts.policy.FALLBACKS
LEARNING_RATE = 0.4
N_STEPS = 10
_STEP, _MIX_1, _MIX_2 = (
    np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)  # splitmix64


class Nearest(NamedTuple):
    """Nearest descendants of equal type: below[start[u]:start[u + 1]] is N(u).

    Attributes:
        n_above: (n,), number of sets N that contain a vertex.
        n_frontier: (n_types,), |F(G^t)| of the whole graph.
    """

    start: Ints
    below: Ints
    n_above: Ints
    n_frontier: Ints


@compiled
def find_nearest(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> Nearest:
    """Return N of every vertex, and the counts before the first batch."""
    n = len(types)
    user_start, users = find_users(n, arg_start, args)
    leads_to = _find_descendant_types(types, user_start, users, n_types)
    start = np.zeros(n + 1, np.int32)
    below = np.empty(max(16, 2 * n), np.int32)
    n_above = np.zeros(n, np.int32)
    seen_from = np.full(n, -1, np.int32)
    stack = np.empty(n, np.int32)
    n_below = 0
    for u in range(n):
        stack[0] = u
        depth = 1
        while depth > 0:
            depth -= 1
            source = stack[depth]
            for user in users[user_start[source] : user_start[source + 1]]:
                if seen_from[user] == u:
                    continue
                seen_from[user] = u
                if types[user] == types[u]:
                    if n_below == len(below):
                        below = np.concatenate((below, np.empty(n_below, np.int32)))
                    below[n_below] = user
                    n_below += 1
                    n_above[user] += 1
                elif leads_to[user, types[u]]:
                    stack[depth] = user
                    depth += 1
        start[u + 1] = n_below
    n_frontier = np.zeros(n_types, np.int32)
    for v in range(n):
        if n_above[v] == 0:
            n_frontier[types[v]] += 1
    return Nearest(start, below[:n_below], n_above, n_frontier)


@helper
def _find_descendant_types(types: Ints, user_start: Ints, users: Ints, n_types: int) -> FlagTable:
    """Return (n, n_types), True for the types among each vertex's descendants."""
    n = len(types)
    leads_to = np.zeros((n, n_types), np.bool_)
    for v in range(n - 1, -1, -1):
        for user in users[user_start[v] : user_start[v + 1]]:
            leads_to[v, types[user]] = True
            for t in range(n_types):
                leads_to[v, t] |= leads_to[user, t]
    return leads_to


@helper
def copy_nearest(near: Nearest) -> Nearest:
    """Return a copy whose counts may be changed."""
    return Nearest(near.start, near.below, near.n_above.copy(), near.n_frontier.copy())


@helper
def take(near: Nearest, v: int, t: int) -> None:
    """Remove a vertex of type t without remaining arguments from the counts."""
    near.n_frontier[t] -= 1
    for index in range(near.start[v], near.start[v + 1]):
        near.n_above[near.below[index]] -= 1
        if near.n_above[near.below[index]] == 0:
            near.n_frontier[t] += 1


class QTable(NamedTuple):
    """Table of Q-values: values[i] is Q of choosing type states.keys[i], 0 before any update."""

    states: States
    values: Floats


class Visits(NamedTuple):
    """Decisions of a trial: state, index of the chosen value in the table, and reward of each."""

    state: Ints
    value_index: Ints
    reward: Floats


@compiled
def make_table() -> QTable:
    """Return the table before the first trial."""
    states = make_states()
    return QTable(states, np.zeros(len(states.keys)))


@helper
def draw_unit(generator: UnsignedLongs) -> float:
    """Return a number in [0, 1) and advance the generator (1,): splitmix64."""
    generator[0] += _STEP
    bits = generator[0]
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    bits ^= bits >> np.uint64(31)
    return float(bits >> np.uint64(11)) / 2.0**53


@compiled
def run_trial(
    begin: Ready, near: Nearest, table: QTable, visits: Visits, encoding: int, epsilon: float,
    generator: UnsignedLongs,
) -> tuple[QTable, int]:  # fmt: skip
    """Make one schedule and record its decisions in `visits`.

    A decision is random with probability epsilon, uniform over the entries of the state's tuple;
    otherwise it is the one with the largest value. Forced and unbatchable batches are not
    decisions.

    Returns:
        the table with the states of this trial, and the number of decisions.
    """
    ready, near = _copy_ready(begin), copy_nearest(near)
    key = np.empty(len(begin.leader) + 1, np.int32)
    n_visits = 0
    while ready.counts[N_EXECUTED] < len(ready.types):
        if count_ready(ready, UNBATCHABLE) > 0:
            commit(ready, UNBATCHABLE)
            continue
        length = encode(ready, encoding, key)
        state = find(table.states, key, length)
        if state == UNSEEN:
            table, state = _add_state(table, key, length)
        if draw_unit(generator) < epsilon:
            t = key[int(draw_unit(generator) * length)]
            index = table.states.starts[state]
            while table.states.keys[index] != t:
                index += 1
        else:
            index = find_best_index(table, state, encoding)
            t = table.states.keys[index]
        visits.state[n_visits] = state
        visits.value_index[n_visits] = index
        visits.reward[n_visits] = count_ready(ready, t) / near.n_frontier[t] - 1.0
        n_visits += 1
        for v in ready.queue[ready.head[t] : ready.tail[t]]:
            take(near, v, t)
        commit(ready, t)
    return table, n_visits


@helper
def _copy_ready(begin: Ready) -> Ready:
    return Ready(
        begin.types, begin.user_start, begin.users, begin.missing.copy(), begin.queue.copy(),
        begin.first, begin.head.copy(), begin.tail.copy(), begin.since.copy(), begin.leader,
        begin.followers, begin.batch_of.copy(), begin.counts.copy(),
    )  # fmt: skip


@helper
def _add_state(table: QTable, key: Ints, length: int) -> tuple[QTable, int]:
    states, state = add(table.states, key, length)
    values = table.values
    if len(values) < len(states.keys):
        values = np.zeros(len(states.keys))
        values[: len(table.values)] = table.values
    return QTable(states, values), state


@helper
def find_best_index(table: QTable, state: int, encoding: int) -> int:
    """Return the index of the largest value of a state."""
    begin = table.states.starts[state]
    best = begin
    for index in range(
        begin, begin + count_actions(encoding, table.states.starts[state + 1] - begin)
    ):
        if table.values[index] >= table.values[best]:
            best = index
    return int(best)


@compiled
def update(table: QTable, visits: Visits, n_visits: int, encoding: int, clamped: bool) -> None:
    """Move the values of all decisions, in order and in place, towards their N-step returns.

    Args:
        clamped: the value after the last step is max(0, max Q), as in the release.
    """
    for i in range(n_visits):
        end = min(i + N_STEPS, n_visits)
        gain = 0.0
        if end < n_visits:
            gain = table.values[find_best_index(table, visits.state[end], encoding)]
            if clamped:
                gain = max(0.0, gain)
        for j in range(end - 1, i - 1, -1):
            gain += visits.reward[j]
        index = visits.value_index[i]
        table.values[index] += LEARNING_RATE * (gain - table.values[index])


@compiled
def select_choices(table: QTable, encoding: int) -> Ints:
    """Return the greedy type of every state."""
    choices = np.empty(table.states.total[0], np.int32)
    for state in range(len(choices)):
        choices[state] = table.states.keys[find_best_index(table, state, encoding)]
    return choices


@compiled
def run(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, cheap: Flags,
    states: States, choices: Ints, encoding: int, fallback: int,
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    """Return order and starts of the schedule, and the state of every decision.

    Args:
        choices: (n_states,), the type chosen in each state.
        fallback: rule for states that are not in the table, which are returned as UNSEEN.
    """
    ready = start(types, arg_start, args, follows)
    key = np.empty(len(follows) + 1, np.int32)
    decided = np.empty(len(types), np.int32)
    n_decided = 0
    average = np.zeros(0)
    # Arrays of no vertices, as nothing is counted before the first unseen state.
    extracted = extract(types[:0], arg_start[:1], args[:0], len(follows))
    while ready.counts[N_EXECUTED] < len(types):
        if count_ready(ready, UNBATCHABLE) > 0:
            commit(ready, UNBATCHABLE)
            continue
        length = encode(ready, encoding, key)
        state = find(states, key, length)
        decided[n_decided] = state
        n_decided += 1
        if state != UNSEEN:
            t = choices[state]
        elif fallback == AGENDA:
            if len(average) == 0:
                average = compute_average_depths(types, arg_start, args, follows)
            t = find_shallowest(ready, average, cheap)
        elif fallback == SUFFICIENT:
            if len(extracted.stack) == 0:
                extracted = _count_remaining(ready, arg_start, args)
            t = find_safest(ready, extracted, False)
        else:
            t = key[length - 1]
        if len(extracted.stack) > 0:
            for v in ready.queue[ready.head[t] : ready.tail[t]]:
                remove(extracted, ready, v)
        commit(ready, t)
    order, starts = finish(ready)
    return order, starts, decided[:n_decided]


@compiled
def run_segments(
    segments: Ints, types: Ints, arg_start: Ints, args: Ints, follows: Ints, cheap: Flags,
    states: States, choices: Ints, encoding: int, fallback: int,
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """Return order, starts and segment_starts of the schedule, and the state of every decision.

    Args:
        segments: (n,), segment of each vertex; the others as for `run`.
    """
    cut = cut_arrays(segments, types, arg_start, args)
    order, starts, segment_starts = start_batches(cut)
    decided, n_decided, n_segments = np.empty(len(types), np.int32), 0, len(cut.starts) - 1
    for r in range(n_segments):
        part_types, part_start, part_args = select_part(cut, r)
        part_order, part_starts, part_decided = run(
            part_types, part_start, part_args, follows, cheap, states, choices, encoding, fallback
        )
        add_batches(cut, r, part_order, part_starts, order, starts, segment_starts)
        for state in part_decided:
            decided[n_decided] = state
            n_decided += 1
    return order, starts[: segment_starts[n_segments] + 1], segment_starts, decided[:n_decided]


@helper
def _count_remaining(ready: Ready, arg_start: Ints, args: Ints) -> Extracted:
    """Return the counts of the remaining vertices; executed ones count as unbatchable."""
    types = ready.types.copy()
    for t in range(len(ready.leader)):
        for v in ready.queue[ready.first[t] : ready.head[t]]:
            types[v] = UNBATCHABLE
    return extract(types, arg_start, args, len(ready.leader))
