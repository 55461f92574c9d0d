"""Decoding of a recorder's log to arrays in one compiled pass, which also checks every call.

The depth counter passes from fiber to fiber here, so programs need not count while they run. It
contains segment, phase and depth in one number. Earlier calls in the order of execution have
smaller numbers: a join takes the maximum, a step adds one, and an operand is ready if its number is
smaller.

Source: ACRoBat, MLSys 2024, sections 4.1 and B.3.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.errors import ProgramError
from dynbatch.harness.programs.blocks import COUNTED, TAINTED
from dynbatch.harness.programs.log import (
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
    SEGMENT,
)
from dynbatch.harness.values.arrays import Flags, FlagTable, IntArray, IntTable, Longs

FlagCube = Annotated[Flags, 3]

# Indices of the state that persists between two parts of a log; the last one is its length.
FIBER, COUNTER, CURRENT_SEGMENT, LEVEL, N, N_ARGS, N_FIBERS, FAULT, N_STATE = range(9)
# Errors of a call; the first one is reported.
FINE, UNKNOWN, TOO_MANY, MISFIT, BACKWARD, LACKING, PHASES = range(7)
WRONG = {
    UNKNOWN: "a block is called with a value that no block computed",
    TOO_MANY: "a block is called with a different number of operands than traced",
    MISFIT: "a block is called with other shapes than traced",
    BACKWARD: "a block reads a result of its own depth; read it after its join",
    LACKING: "a block is called without a required number",
    PHASES: "a program has too many stages",
}
# Bits of a counter.
DEPTH_BITS, PHASE_BITS = 28, 12
ONE_PHASE = 1 << DEPTH_BITS
ONE_SEGMENT = 1 << (DEPTH_BITS + PHASE_BITS)
MAX_PHASES = 1 << PHASE_BITS


def extract_phase(counter: int) -> int:
    """Return the program phase, from 0."""
    return (counter >> DEPTH_BITS) & (MAX_PHASES - 1)


def extract_depth(counter: int) -> int:
    """Return the number of steps within the phase (of the graph segment)."""
    return counter & (ONE_PHASE - 1)


def check_fault(fault: int) -> None:
    """Raise ProgramError for the error code of a call."""
    if fault != FINE:
        raise ProgramError(WRONG[fault])


@compiled
def measure_log(
    log: IntArray, n_args_of: IntArray, first_name: IntArray
) -> tuple[int, int, int, int]:
    """Return numbers of vertices, operands and forked fibers of a log, and its nesting depth."""
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


class DecodingArrays(NamedTuple):
    """Inputs and outputs of the decoding of a log.

    Attributes:
        kind_types, kind_args, first_name, names: see dynbatch.harness.programs.log.Kinds.
        statics: (n_types,), static depth of every type, or TAINTED.
        n_slots, fits, needs: see Fitting.
        state: (N_STATE,), written.
        fibers: counter of each fiber, written.
        nested: scratch, two numbers per nesting level.
        types, counters: (n,), of vertices, written.
        depths: (3, n), segments, phases and depths of vertices, written.
        arg_start: (n + 1,), written.
        args: (m,), written.
        pulled: (n_names, n), external numbers of vertices, written.
        feeds: (n_types, n_types), written.
    """

    kind_types: IntArray
    kind_args: IntArray
    first_name: IntArray
    names: IntArray
    statics: IntArray
    n_slots: IntArray
    fits: FlagCube
    needs: FlagTable
    state: Longs
    fibers: Longs
    nested: Longs
    types: IntArray
    counters: Longs
    depths: IntTable
    arg_start: IntArray
    args: IntArray
    pulled: IntTable
    feeds: FlagTable


@compiled
def decode_log(log: IntArray, base: int, restart: bool, arrays: DecodingArrays) -> None:
    """Decode one part of a log, after the earlier ones.

    Args:
        base: initial depth of programs.
        restart: True if depths restart in each graph segment.
    """
    state, i = arrays.state, 0
    while i < len(log):
        is_event = log[i] < CHAIN
        i = (
            _decode_event(log, i, base, restart, arrays)
            if is_event
            else _decode_calls(log, i, arrays)
        )
    arrays.fibers[state[FIBER]] = state[COUNTER]


@helper
def _decode_calls(log: IntArray, i: int, arrays: DecodingArrays) -> int:
    """Decode the call, or the chain of calls, at index i; return the index of the next entry."""
    state, n, m, counter = (
        arrays.state,
        arrays.state[N],
        arrays.state[N_ARGS],
        arrays.state[COUNTER],
    )
    times, kind, first = 1, log[i] - FIRST_KIND, i + 1
    if log[i] == CHAIN:
        times, kind, first = log[i + 2], log[i + 1] - FIRST_KIND, i + 3
    n_args = 1 if log[i] == CHAIN else arrays.kind_args[kind]
    if n_args == COUNTED:
        n_args, first = log[first], first + 1
    type_id, at, fault = arrays.kind_types[kind], first + n_args, state[FAULT]
    given = arrays.names[arrays.first_name[kind] : arrays.first_name[kind + 1]]
    for k in range(min(times, 2)):
        counter = _put(n, type_id, counter, arrays)
        for slot in range(n_args):
            arrays.args[m + slot] = n - 1 if k else log[first + slot]
        new_fault = _find_fault(n, m, n_args, arrays)
        is_lacking = _put_numbers(n, log, at + k, times, given, arrays)
        if fault == FINE:
            fault = LACKING if new_fault == FINE and is_lacking else new_fault
        n, m = n + 1, m + n_args
        arrays.arg_start[n] = m
    rest = times - 2
    if rest > 0:
        is_lacking = _put_all_numbers(n, rest, log, at + 2, given, arrays)
        fault = LACKING if fault == FINE and is_lacking else fault
        counter = _go_on(n, rest, counter, arrays)
        n, m = n + rest, m + rest
    state[N], state[N_ARGS], state[COUNTER], state[FAULT] = n, m, counter, fault
    return at + times * len(given)


@helper
def _put(n: int, type_id: int, counter: int, arrays: DecodingArrays) -> int:
    """Write type and depth of vertex n; return the next counter."""
    depths, now, static = arrays.depths, arrays.state[CURRENT_SEGMENT], arrays.statics[type_id]
    own = counter if static == TAINTED else now * ONE_SEGMENT + static
    arrays.types[n], arrays.counters[n] = type_id, own
    depths[0, n] = now
    depths[1, n] = (own >> DEPTH_BITS) & (MAX_PHASES - 1)
    depths[2, n] = own & (ONE_PHASE - 1)
    return counter + 1 if static == TAINTED else counter


@helper
def _put_numbers(
    n: int, log: IntArray, at: int, times: int, given: IntArray, arrays: DecodingArrays
) -> bool:
    """Write the external numbers of vertex n; those of different names are `times` apart.

    Returns:
        True if a required number is missing.
    """
    pulled, needed = arrays.pulled, arrays.needs[arrays.types[n]]
    for name in range(len(pulled)):
        pulled[name, n] = NO_NUMBER
    for j in range(len(given)):
        pulled[given[j], n] = log[at + j * times]
    is_lacking = False
    for name in range(len(pulled)):
        is_lacking |= needed[name] and pulled[name, n] < 0
    return is_lacking


@helper
def _put_all_numbers(
    n: int, count: int, log: IntArray, at: int, given: IntArray, arrays: DecodingArrays
) -> bool:
    """Write the external numbers of a chain's last `count` vertices, from n on.

    See _put_numbers.
    """
    pulled, needed = arrays.pulled, arrays.needs[arrays.types[n - 1]]
    for name in range(len(pulled)):
        pulled[name, n : n + count] = NO_NUMBER
    is_lacking = False
    for j in range(len(given)):
        first = at + j * (count + 2)
        numbers = log[first : first + count]
        pulled[given[j], n : n + count] = numbers
        is_lacking |= needed[given[j]] and numbers.min() < 0
    return is_lacking


@helper
def _go_on(n: int, times: int, counter: int, arrays: DecodingArrays) -> int:
    """Write a chain's calls from vertex n on: copies of the previous call with growing depth.

    Returns:
        the next counter.
    """
    counters, depths, arg_start = arrays.counters, arrays.depths, arrays.arg_start
    before, type_id = counters[n - 1], arrays.types[n - 1]
    now, phase = depths[0, n - 1], depths[1, n - 1]
    first, step = arg_start[n], 1 if arrays.statics[type_id] == TAINTED else 0
    for k in range(times):
        arrays.types[n + k] = type_id
        counters[n + k] = before + (k + 1) * step
        arrays.args[first + k] = n + k - 1
        arg_start[n + k + 1] = first + k + 1
    for k in range(times):
        depths[0, n + k] = now
        depths[1, n + k] = phase
        depths[2, n + k] = counters[n + k] & (ONE_PHASE - 1)
    return counter + step * times


@helper
def _decode_event(log: IntArray, i: int, base: int, restart: bool, arrays: DecodingArrays) -> int:
    """Decode the event at index i; return the index of the next entry."""
    state, fibers = arrays.state, arrays.fibers
    code, counter = log[i], state[COUNTER]
    fibers[state[FIBER]] = counter
    if code == RESUME:
        state[FIBER] = log[i + 1]
        floor = state[CURRENT_SEGMENT] * ONE_SEGMENT
        state[COUNTER] = _convert_counter(fibers[log[i + 1]], floor, base, restart)
        return i + 2
    if code == END:
        fibers[log[i + 1]] = max(fibers[log[i + 1]], counter)
        return i + 2
    if code == FORK:
        state[FIBER] = log[i + 1]
        fibers[log[i + 1] : log[i + 1] + log[i + 2]] = counter
        state[N_FIBERS] += log[i + 2]
        return i + 3
    if code == GHOSTS:
        state[COUNTER] += log[i + 1]
        return i + 2
    if code == PHASE:
        counter = (counter | (ONE_PHASE - 1)) + 1
        if (counter >> DEPTH_BITS) & (MAX_PHASES - 1) == 0:
            state[FAULT] = PHASES
        state[COUNTER] = counter + base
    elif code == SEGMENT:
        state[CURRENT_SEGMENT] += 1
    else:
        _record_branch(code, state, arrays.nested)
    return i + 1


@helper
def _record_branch(code: int, state: Longs, nested: Longs) -> None:
    """Record, by nesting level, the start and the maximum depth of branches that do not wait."""
    level = state[LEVEL]
    if code == OPEN:
        nested[2 * level] = nested[2 * level + 1] = state[COUNTER]
        state[LEVEL] += 1
    elif code == BRANCH:
        nested[2 * level - 1] = max(nested[2 * level - 1], state[COUNTER])
        state[COUNTER] = nested[2 * level - 2]
    else:
        state[COUNTER] = nested[2 * level - 1]
        state[LEVEL] -= 1


@helper
def _convert_counter(counter: int, floor: int, base: int, restart: bool) -> int:
    """Convert a fiber's counter of an earlier graph segment to the current segment."""
    if counter >= floor:
        return counter
    phase = (counter >> DEPTH_BITS) & (MAX_PHASES - 1)
    depth = base if restart else counter & (ONE_PHASE - 1)
    return floor + phase * ONE_PHASE + depth


@helper
def _find_fault(n: int, first: int, n_args: int, arrays: DecodingArrays) -> int:
    """Record the types that feed vertex n, and return its error, or FINE.

    Args:
        first: index of its first operand in args.
    """
    types, counters, args, fits = arrays.types, arrays.counters, arrays.args, arrays.fits
    type_id, fault = types[n], FINE
    takes_any = arrays.n_slots[type_id] == COUNTED
    if not takes_any and arrays.n_slots[type_id] != n_args:
        fault = TOO_MANY
    for slot in range(n_args):
        arg = args[first + slot]
        if arg < 0 or arg >= n:
            fault = UNKNOWN
            continue
        arrays.feeds[types[arg], type_id] = True
        index = 0 if takes_any else slot
        if index >= fits.shape[1] or not fits[type_id, index, types[arg]]:
            fault = MISFIT
        elif counters[arg] >= counters[n]:
            fault = BACKWARD
    return fault
