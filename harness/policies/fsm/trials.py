"""Trials of tabular N-step Q-learning: one schedule each, then one update of what it visited.

Source: Chen et al., ICML 2023, Sec. 2.3, and their release, dynet/ooc-scheduler.cc (train).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.policies.fsm.encoding import encode, n_actions
from harness.policies.fsm.nearest import Nearest, fresh, take
from harness.policies.fsm.states import UNSEEN, States, add, find, no_states
from harness.policies.parts.ready import N_EXECUTED, Ready, commit, n_ready
from harness.values.arrays import Floats, Ints, UnsignedLongs
from harness.values.graph import UNBATCHABLE

LEARNING_RATE = 0.4
N_STEPS = 10
_STEP, _MIX_1, _MIX_2 = (
    np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)  # splitmix64


class Table(NamedTuple):
    """values: Q of taking type states.keys[i], at the same place i; 0 before the first update."""

    states: States
    values: Floats


class Visits(NamedTuple):
    """What a trial did, by decision: state, place of its value in the table, reward."""

    state: Ints
    place: Ints
    reward: Floats


@compiled
def empty_table() -> Table:
    """Return the table before the first trial."""
    states = no_states()
    return Table(states, np.zeros(len(states.keys)))


@helper
def random_unit(generator: UnsignedLongs) -> float:
    """Return a number in [0, 1) and step the generator (1,): splitmix64."""
    generator[0] += _STEP
    bits = generator[0]
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    bits ^= bits >> np.uint64(31)
    return float(bits >> np.uint64(11)) / 2.0**53


@compiled
def trial(
    begin: Ready, near: Nearest, table: Table, visits: Visits, encoding: int, epsilon: float,
    generator: UnsignedLongs,
) -> tuple[Table, int]:  # fmt: skip
    """Make one schedule and note it in `visits`; return the table with the states it met, and the
    number of decisions.

    A decision is at random with probability epsilon, uniform over the entries of the state's tuple;
    else it is the one of largest value. Forced and unbatchable batches are no decisions.
    """
    ready, near = _fresh_ready(begin), fresh(near)
    key = np.empty(len(begin.leader) + 1, np.int32)
    n_visits = 0
    while ready.counts[N_EXECUTED] < len(ready.types):
        if n_ready(ready, UNBATCHABLE) > 0:
            commit(ready, UNBATCHABLE)
            continue
        length = encode(ready, encoding, key)
        state = find(table.states, key, length)
        if state == UNSEEN:
            table, state = _with_state(table, key, length)
        if random_unit(generator) < epsilon:
            t = key[int(random_unit(generator) * length)]
            place = table.states.starts[state]
            while table.states.keys[place] != t:
                place += 1
        else:
            place = best_place(table, state, encoding)
            t = table.states.keys[place]
        visits.state[n_visits] = state
        visits.place[n_visits] = place
        visits.reward[n_visits] = n_ready(ready, t) / near.n_frontier[t] - 1.0
        n_visits += 1
        for v in ready.queue[ready.head[t] : ready.tail[t]]:
            take(near, v, t)
        commit(ready, t)
    return table, n_visits


@helper
def _fresh_ready(begin: Ready) -> Ready:
    return Ready(
        begin.types, begin.user_start, begin.users, begin.missing.copy(), begin.queue.copy(),
        begin.first, begin.head.copy(), begin.tail.copy(), begin.since.copy(), begin.leader,
        begin.followers, begin.batch_of.copy(), begin.counts.copy(),
    )  # fmt: skip


@helper
def _with_state(table: Table, key: Ints, length: int) -> tuple[Table, int]:
    states, state = add(table.states, key, length)
    values = table.values
    if len(values) < len(states.keys):
        values = np.zeros(len(states.keys))
        values[: len(table.values)] = table.values
    return Table(states, values), state


@helper
def best_place(table: Table, state: int, encoding: int) -> int:
    """Return where the largest value of a state lies."""
    begin = table.states.starts[state]
    best = begin
    for place in range(begin, begin + n_actions(encoding, table.states.starts[state + 1] - begin)):
        if table.values[place] >= table.values[best]:
            best = place
    return int(best)


@compiled
def update(table: Table, visits: Visits, n_visits: int, encoding: int, clamped: bool) -> None:
    """Move the values of all decisions, in order and in place, towards their N-step returns.

    clamped: the value behind the last step is max(0, max Q), as in the release.
    """
    for i in range(n_visits):
        end = min(i + N_STEPS, n_visits)
        gain = 0.0
        if end < n_visits:
            gain = table.values[best_place(table, visits.state[end], encoding)]
            if clamped:
                gain = max(0.0, gain)
        for j in range(end - 1, i - 1, -1):
            gain += visits.reward[j]
        table.values[visits.place[i]] += LEARNING_RATE * (gain - table.values[visits.place[i]])


@compiled
def choices_of(table: Table, encoding: int) -> Ints:
    """Return the greedy type of every state."""
    choices = np.empty(table.states.total[0], np.int32)
    for state in range(len(choices)):
        choices[state] = table.states.keys[best_place(table, state, encoding)]
    return choices
