"""From a recorder's log to arrays, in one compiled pass, which also proves every call.

The depth counter (harness.programs.counter) is threaded through here, fiber by fiber, so that
programs need not count while they run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.machine.compiled import compiled
from harness.programs.call_text import COUNTED
from harness.programs.counter import DEPTH_BITS, MOST_PHASES, ONE_PHASE, ONE_ROUND
from harness.programs.log import (
    BRANCH,
    CHAIN,
    CLOSE,
    END,
    FIRST_KIND,
    FORK,
    GHOSTS,
    NO_NUMBER,
    OPEN,
    PHASE,
    RESUME,
    ROUND,
)
from harness.programs.taint import TAINTED
from harness.values.arrays import IntArray

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Of the state that is kept between two parts of a log.
FIBER, COUNTER, ROUND_NOW, N, N_ARGS, FAULT, N_STATE = range(7)
# What is wrong with a call, the first one that is.
FINE, UNKNOWN, TOO_MANY, MISFIT, BACKWARD, LACKING, PHASES = range(7)


@compiled
def measured(log: IntArray, n_args_of: IntArray, first_name: IntArray) -> tuple[int, int, int, int]:
    """How many vertices, operands and forked fibers a log has, and how deep branches nest."""
    n = m = n_forked = nested = deepest = 0
    i = 0
    while i < len(log):
        code = log[i]
        if code >= FIRST_KIND:
            kind = code - FIRST_KIND
            n_args = n_args_of[kind]
            if n_args == COUNTED:
                i += 1
                n_args = log[i]
            n += 1
            m += n_args
            i += 1 + n_args + first_name[kind + 1] - first_name[kind]
        elif code == CHAIN:
            kind, times = log[i + 1] - FIRST_KIND, log[i + 2]
            n += times
            m += times
            i += 4 + times * (first_name[kind + 1] - first_name[kind])
        elif code == FORK:
            n_forked += log[i + 2]
            i += 3
        elif code in (RESUME, END, GHOSTS):
            i += 2
        else:
            if code == OPEN:
                nested += 1
                deepest = max(deepest, nested)
            elif code == CLOSE:
                nested -= 1
            i += 1
    return n, m, n_forked, deepest


@compiled
def decoded(
    log: IntArray,
    kinds: tuple[IntArray, IntArray, IntArray, IntArray],
    rules: tuple[IntArray, IntArray, Flags, Flags],
    base: int,
    restart: bool,
    state: Longs,
    fibers: Longs,
    nested: Longs,
    vertices: tuple[IntArray, Longs, IntArray, IntArray],
    args: IntArray,
    pulls: IntArray,
    feeds: Flags,
) -> None:
    """Decode one part of a log behind those before it.

    kinds: arrays of Kinds. rules: of every type its static depth and its number of operands
    (COUNTED: any), which type may stand in which slot (n_types, slots, n_types), and which numbers
    it needs (n_types, n_names). base: depth that programs begin at. restart: whether depths begin
    anew in a round.
    Written are: state (N_STATE,); fibers, the counter of each; vertices: types (n,), counters (n,),
    rounds, phases and depths (3, n), and where operands begin (n + 1,); args (m,); pulls (n_names,
    n); feeds (n_types, n_types).
    nested: room for two numbers a level of nesting.
    """
    kind_types, kind_args, first_name, names = kinds
    types, counters, depths, arg_start = vertices
    fiber, counter = state[FIBER], state[COUNTER]
    floor = state[ROUND_NOW] * ONE_ROUND
    n, m, fault = state[N], state[N_ARGS], state[FAULT]
    level = i = 0
    while i < len(log):
        code = log[i]
        if code >= FIRST_KIND or code == CHAIN:
            times, first = np.int64(1), i + 1
            if code == CHAIN:
                kind, times, first = log[i + 1] - FIRST_KIND, np.int64(log[i + 2]), i + 3
                n_args = 1
            else:
                kind = code - FIRST_KIND
                n_args = kind_args[kind]
                if n_args == COUNTED:
                    n_args = log[first]
                    first += 1
            n_names = first_name[kind + 1] - first_name[kind]
            type_id, of_name = kind_types[kind], first + n_args
            static = rules[0][type_id]
            for k in range(times):
                types[n] = type_id
                if static == TAINTED:
                    counters[n] = counter
                    counter += 1
                else:
                    counters[n] = floor + static
                depths[0, n] = state[ROUND_NOW]
                depths[1, n] = (counters[n] >> DEPTH_BITS) & (MOST_PHASES - 1)
                depths[2, n] = counters[n] & (ONE_PHASE - 1)
                for name in range(len(pulls)):
                    pulls[name, n] = NO_NUMBER
                for j in range(n_names):
                    pulls[names[first_name[kind] + j], n] = log[of_name + j * times + k]
                for slot in range(n_args):
                    args[m + slot] = n - 1 if k else log[first + slot]
                found = _proved(n, m, n_args, types, counters, args, rules, pulls, feeds)
                if fault == FINE:
                    fault = found
                m += n_args
                n += 1
                arg_start[n] = m
            i = of_name + times * n_names
        elif code == RESUME:
            fibers[fiber] = counter
            fiber = log[i + 1]
            counter = _caught_up(fibers[fiber], floor, base, restart)
            i += 2
        elif code == END:
            fibers[fiber] = counter
            fibers[log[i + 1]] = max(fibers[log[i + 1]], counter)
            i += 2
        elif code == FORK:
            fibers[fiber] = counter
            fiber = log[i + 1]
            fibers[fiber : fiber + log[i + 2]] = counter
            i += 3
        elif code == GHOSTS:
            counter += log[i + 1]
            i += 2
        else:
            if code == PHASE:
                counter = (counter | (ONE_PHASE - 1)) + 1
                if fault == FINE and (counter >> DEPTH_BITS) & (MOST_PHASES - 1) == 0:
                    fault = PHASES
                counter += base
            elif code == ROUND:
                state[ROUND_NOW] += 1
                floor = state[ROUND_NOW] * ONE_ROUND
            elif code == OPEN:
                nested[2 * level] = nested[2 * level + 1] = counter
                level += 1
            elif code == BRANCH:
                nested[2 * level - 1] = max(nested[2 * level - 1], counter)
                counter = nested[2 * level - 2]
            elif code == CLOSE:
                level -= 1
                counter = nested[2 * level + 1]
            i += 1
    fibers[fiber] = counter
    state[FIBER], state[COUNTER] = fiber, counter
    state[N], state[N_ARGS], state[FAULT] = n, m, fault


@compiled
def _caught_up(counter: int, floor: int, base: int, restart: bool) -> int:
    """A fiber's counter of an earlier round in the one that is recorded now."""
    if counter >= floor:
        return counter
    phase = (counter >> DEPTH_BITS) & (MOST_PHASES - 1)
    depth = base if restart else counter & (ONE_PHASE - 1)
    return floor + phase * ONE_PHASE + depth


@compiled
def _proved(
    n: int,
    first: int,
    n_args: int,
    types: IntArray,
    counters: Longs,
    args: IntArray,
    rules: tuple[IntArray, IntArray, Flags, Flags],
    pulls: IntArray,
    feeds: Flags,
) -> int:
    """Note which types feed vertex n, whose operands begin at `first`; what is wrong, or FINE."""
    _, n_slots, fits, needs = rules
    type_id, found = types[n], FINE
    if n_slots[type_id] != COUNTED and n_slots[type_id] != n_args:
        found = TOO_MANY
    for slot in range(n_args):
        arg = args[first + slot]
        if arg < 0 or arg >= n:
            found = UNKNOWN
            continue
        feeds[types[arg], type_id] = True
        place = 0 if n_slots[type_id] == COUNTED else slot
        if place >= fits.shape[1] or not fits[type_id, place, types[arg]]:
            found = MISFIT
        elif counters[arg] >= counters[n]:
            found = BACKWARD
    for name in range(needs.shape[1]):
        if needs[type_id, name] and pulls[name, n] < 0:
            found = LACKING
    return found
