"""States of ED-Batch's machines, which summarize the ready vertices, and a table of states.

A state is a tuple of type ids. T+ are the batchable types with ready vertices. "base" is T+ in
increasing order. "max" is the same, followed by the type with most ready vertices. "sort" is T+ in
decreasing order of ready vertices. Among equals the smaller id is first. A table numbers states in
order of appearance and finds them by hashing.

Source: Chen et al., ICML 2023, Sec. 2.2, and their release, dynet/ooc-scheduler.cc (schedule_impl).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.policies.parts.ready import Ready
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import UNBATCHABLE

ENCODINGS = ("base", "max", "sort")
BASE, MAX, SORT = range(3)
UNSEEN = -1
_HASH_START, _HASH_FACTOR = 1469598103934665603, 1099511628211  # FNV-1a
_FIRST_SLOTS = 64  # a power of two


class States(NamedTuple):
    """Table of states; keys[starts[s]:starts[s + 1]] is state s. Arrays may have unused ends.

    Attributes:
        slots: (a power of two,), states by hash; UNSEEN for a free slot. At most half are used.
        total: (1,), number of states.
    """

    keys: Ints
    starts: Ints
    slots: Ints
    total: Ints


@helper
def make_states() -> States:
    """Return an empty table."""
    return States(
        np.empty(4 * _FIRST_SLOTS, np.int32),
        np.zeros(_FIRST_SLOTS, np.int32),
        np.full(_FIRST_SLOTS, UNSEEN, np.int32),
        np.zeros(1, np.int32),
    )


@helper
def _hash(key: Ints, length: int) -> int:
    code = _HASH_START
    for position in range(length):
        code = (code ^ key[position]) * _HASH_FACTOR
    return code ^ (code >> 32)


@helper
def find(states: States, key: Ints, length: int) -> int:
    """Return the number of the state key[:length], or UNSEEN."""
    keys, starts, slots = states.keys, states.starts, states.slots
    slot = _hash(key, length) & (len(slots) - 1)
    while slots[slot] != UNSEEN:
        begin = starts[slots[slot]]
        if starts[slots[slot] + 1] - begin == length:
            position = 0
            while position < length and keys[begin + position] == key[position]:
                position += 1
            if position == length:
                break
        slot = (slot + 1) & (len(slots) - 1)
    return int(slots[slot])


@helper
def _find_free_slot(slots: Ints, key: Ints, length: int) -> int:
    """Return the slot for a state that is not in the table."""
    slot = _hash(key, length) & (len(slots) - 1)
    while slots[slot] != UNSEEN:
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@helper
def add(states: States, key: Ints, length: int) -> tuple[States, int]:
    """Return the table with a state that it does not contain yet, and the state's number."""
    state = states.total[0]
    if 2 * (state + 1) > len(states.slots):
        states = _grow_slots(states)
    begin = states.starts[state]
    if begin + length > len(states.keys):
        keys = np.empty(2 * len(states.keys) + length, np.int32)
        keys[:begin] = states.keys[:begin]
        states = States(keys, states.starts, states.slots, states.total)
    states.keys[begin : begin + length] = key[:length]
    states.slots[_find_free_slot(states.slots, key, length)] = state
    states.starts[state + 1] = begin + length
    states.total[0] += 1
    return states, state


@helper
def _grow_slots(states: States) -> States:
    n_slots, n = 2 * len(states.slots), states.total[0]
    starts = np.zeros(n_slots, np.int32)
    starts[: n + 1] = states.starts[: n + 1]
    slots = np.full(n_slots, UNSEEN, np.int32)
    for state in range(n):
        begin, end = starts[state], starts[state + 1]
        slots[_find_free_slot(slots, states.keys[begin:end], end - begin)] = state
    return States(states.keys, starts, slots, states.total)


@compiled
def build_states(keys: Ints, starts: Ints) -> States:
    """Return the table of the states keys[starts[s]:starts[s + 1]], numbered in that order."""
    states = make_states()
    for state in range(len(starts) - 1):
        begin, end = starts[state], starts[state + 1]
        states, _ = add(states, keys[begin:end], end - begin)
    return states


@helper
def encode(ready: Ready, encoding: int, key: Ints) -> int:
    """Write the state into `key` (n_types + 1,) and return its length."""
    head, tail = ready.head, ready.tail
    length = 0
    modal, most = UNBATCHABLE, 0
    for t in range(UNBATCHABLE + 1, len(head)):
        size = tail[t] - head[t]
        if size == 0:
            continue
        position = length
        if encoding == SORT:
            while position > 0 and tail[key[position - 1]] - head[key[position - 1]] < size:
                key[position] = key[position - 1]
                position -= 1
        key[position] = t
        length += 1
        if size > most:
            modal, most = t, size
    if encoding == MAX:
        key[length] = modal
        length += 1
    return length


@helper
def count_actions(encoding: int, length: int) -> int:
    """Return the number of types to choose from, which are the first entries of a state."""
    return length - 1 if encoding == MAX else length
