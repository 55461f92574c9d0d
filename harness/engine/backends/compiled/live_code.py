"""A round of a program that is still running: from its log to its values, without Python.

Everything is found in one table of arrays that stay from round to round and from mini-batch to
mini-batch (live_rounds.py). What is wrong, or needs more room, is returned as a number before
anything counts as done, so that the same round can be tried again. A round of eight instances takes
20 to 50 us, and to go through Python 12.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from harness.compiler.compiled import compiled
from harness.compiler.pointers import (
    WORD_BYTES,
    address_of,
    arrays_at,
    call,
    call_for_number,
    count_cycles,
    store_atomic,
)
from harness.compiler.registry import helper
from harness.engine.backends.compiled.arguments import put_parts
from harness.engine.lowering.plan import FORWARD as FORWARD_STAGES
from harness.engine.rows.fields import FieldArrays
from harness.engine.rows.filling import FILLED, Arrays, fill_fields, fill_pulls, place_fields
from harness.engine.rows.layout import ALL_ROWS
from harness.engine.rows.row_order import FOLLOWS, Source, assign_rows
from harness.engine.rows.row_order import N_BATCHES as N_BATCHES_OF
from harness.engine.rows.row_order import N as N_OF
from harness.policies.parts.levels import by_counters
from harness.programs.decode import FAULT, FINE, N_ARGS, N_FIBERS, decoded, measured
from harness.programs.decode import Arrays as Decoded
from harness.programs.decode import N as N_RECORDED
from harness.programs.log import DONE, UNDONE
from harness.values.arrays import Flags, FlagTable, IntArray, IntTable, Longs, LongTable

FlagCube = Annotated[Flags, 3]
# Of Kept.progress: how far the mini-batch is, and how much this round has of what has room.
BASE, N_ROUNDS, N_STARTS, N_BATCHES, N_VALUES, N_PROGRESS = range(6)
N_WANTED = 5  # vertices, entries of `starts`, rounds, `values`, batches; of a log see `decode_next`
# Of Kept.how: addresses of what decodes, plans and runs a round, and what they take.
DECODES, PLANS, RUNS, BASE_DEPTH, RESTARTS, REORDERS, CONTEXT, N_HOW = range(8)
SCHEDULE, FORWARD, N_SPENT = range(3)
# Codes of what else there may be but faults (harness.programs.decode), which are above 0.
MORE_RECORDED, NEW_FEEDS, MORE_ROWS, LACKING_CHILD, MORE_MEMORY = UNDONE, -2, -3, -4, -5
N_STAGES, BATCH_STAGE = len(FORWARD_STAGES), FORWARD_STAGES.index("batch")
_PAIR_BYTES = 8


class Kept(NamedTuple):
    """Arrays of a decoder (harness.programs.decoder), of a layout, and of what runs.

    order, starts: of the schedules of all rounds, one behind the other. ends: of each round the
    vertices and the entries of starts up to its end. used, next_used: rows of each space up to this
    round, and with it. The other ones of a layout: see harness.engine.rows.filling.
    room (n_functions, 3): see Layout.room_wanted. state_rooms (k, 2): of every buffer of states its
    space, and how many rows fit. places, parts: see Found. programs (3, 2): of each of FORWARD what
    runs it, or 0, and its argument. has_steps, addresses_states (3, n_types): of a stage's
    functions. pairs (k, 2): batches of all stages. calls (3, 4): see Team. flags (k, 2): addresses
    of flags that are cleared before a round, and how many follow. spent: ticks that went by while
    rounds were planned and while they ran.
    """

    log: IntArray
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
    known_feeds: FlagTable
    row: IntArray
    order: IntArray
    starts: IntArray
    ends: IntTable
    used: Longs
    next_used: Longs
    spaces: IntArray
    follows: IntArray
    gathers: IntTable
    slots: IntArray
    pulls: IntTable
    values: Longs
    bounds: LongTable
    counts: LongTable
    batches: IntTable
    progress: Longs
    wanted: Longs
    room: LongTable
    state_rooms: LongTable
    places: LongTable
    parts: LongTable
    programs: LongTable
    has_steps: FlagTable
    addresses_states: FlagTable
    pairs: IntTable
    calls: LongTable
    how: Longs
    flags: LongTable
    spent: Longs


@compiled
def whole_round(table: int, n_log: int) -> int:
    """Decode so many entries of the log, plan what they say, and compute it.

    Returns DONE, or what `decode_next` or `plan_next` returns else: what was done of it counts, and
    none of the log is left where the latter does.
    """
    kept = arrays_at(table, Kept)
    how, spent = kept.how, kept.spent
    code = call_for_number(how[DECODES], (table, n_log, how[BASE_DEPTH], how[RESTARTS]))
    if code != DONE:
        return code
    began = count_cycles()
    n_calls = call_for_number(how[PLANS], (table, how[REORDERS]))
    planned = count_cycles()
    spent[SCHEDULE] += planned - began
    if n_calls < 0:
        return n_calls
    if n_calls > 0:
        for k in range(len(kept.flags)):
            for j in range(kept.flags[k, 1]):
                store_atomic(kept.flags[k, 0] + WORD_BYTES * j, 0)
        call(how[RUNS], (how[CONTEXT], address_of(kept.calls), n_calls))
        spent[FORWARD] += count_cycles() - planned
    return DONE


@compiled
def decode_next(table: int, n_log: int, base: int, restart: int) -> int:
    """Decode so many entries of the log; see harness.programs.decode.

    Returns DONE, a fault, MORE_RECORDED where `wanted` says how much room is needed, or NEW_FEEDS
    where blocks feed each other in a way that is not known.
    """
    kept = arrays_at(table, Kept)
    log, state, wanted = kept.log[:n_log], kept.state, kept.wanted
    n, n_args, n_forked, deepest = measured(log, kept.kind_args, kept.first_name)
    wanted[0], wanted[1] = state[N_RECORDED] + n, state[N_ARGS] + n_args
    wanted[2], wanted[3] = state[N_FIBERS] + n_forked, deepest
    is_little = wanted[0] > len(kept.types) or wanted[1] > len(kept.args)
    if is_little or wanted[2] > len(kept.fibers) or 2 * deepest > len(kept.nested):
        return MORE_RECORDED
    arrays = Decoded(
        kept.kind_types, kept.kind_args, kept.first_name, kept.names,
        kept.statics, kept.n_slots, kept.fits, kept.needs, state, kept.fibers, kept.nested,
        kept.types, kept.counters, kept.depths, kept.arg_start, kept.args, kept.pulled, kept.feeds,
    )  # fmt: skip
    decoded(log, base, restart != 0, arrays)
    if state[FAULT] != FINE:
        return int(state[FAULT])
    for t in range(len(kept.statics)):
        for u in range(len(kept.statics)):
            if kept.feeds[t, u] and not kept.known_feeds[t, u]:
                return NEW_FEEDS
    return DONE


@compiled
def plan_next(table: int, reorder: int) -> int:
    """Lay the next round out, and write down the calls that run it.

    Returns how many these are, or what is lacking: MORE_ROWS where `wanted` says how much room is
    needed, LACKING_CHILD, or MORE_MEMORY where rows of buffers are too few.
    """
    kept = arrays_at(table, Kept)
    if kept.state[N_RECORDED] == kept.progress[BASE]:
        return 0
    code = _lay_out(kept, reorder != 0)
    if code != DONE:
        return code
    if not _fits(kept):
        return MORE_MEMORY
    put_parts(
        address_of(kept.places), address_of(kept.parts), len(kept.parts), address_of(kept.values),
        address_of(kept.bounds),
    )  # fmt: skip
    n_calls = _put_calls(kept)
    _go_on(kept)
    return n_calls


@helper
def _lay_out(kept: Kept, reorder: bool) -> int:
    """Schedule what was decoded since the last round, as inline_depth does, and give it rows.

    Written are the schedule, the rows, `batches`, `counts`, `bounds`, `values` and `next_used`;
    `_go_on` lets them count.
    """
    progress, base, end = kept.progress, kept.progress[BASE], kept.state[N_RECORDED]
    types, phases, depths = kept.types[base:end], kept.depths[1], kept.depths[2]
    order, starts = by_counters(types, kept.follows, phases[base:end], depths[base:end])
    if not _has_room(kept, end, len(starts)):
        return MORE_ROWS
    first = progress[N_STARTS]
    kept.order[base:end] = order
    kept.starts[first : first + len(starts)] = starts
    kept.next_used[:] = kept.used
    source = Source(
        order, starts, kept.arg_start[base : end + 1], kept.args[: kept.state[N_ARGS]],
        kept.row[:0], types, kept.spaces, base, kept.row, kept.next_used,
    )  # fmt: skip
    fields = FieldArrays(kept.gathers, kept.slots, kept.pulls, False)
    kept.counts[:] = 0
    batches = assign_rows(source, kept.counts, reorder)
    kept.batches[: len(batches.table)] = batches.table
    kept.bounds[:] = place_fields(kept.counts, len(kept.spaces), fields)
    progress[N_BATCHES] = len(batches.table)
    progress[N_VALUES] = kept.bounds[-1, 0] + kept.bounds[-1, 1]
    if progress[N_VALUES] > len(kept.values):
        kept.wanted[3] = progress[N_VALUES]
        return MORE_ROWS
    found = Arrays(kept.values, kept.bounds, kept.counts)
    if fill_fields(found, source, batches, fields) != FILLED:
        return LACKING_CHILD
    fill_pulls(found, fields, len(kept.spaces), kept.pulled, base, kept.pulled[:0])
    return DONE


@helper
def _has_room(kept: Kept, end: int, n_starts: int) -> bool:
    """Return whether a schedule of n_starts - 1 batches fits, up to vertex `end`; see N_WANTED."""
    progress, wanted = kept.progress, kept.wanted
    wanted[0], wanted[1] = end, progress[N_STARTS] + n_starts
    wanted[2], wanted[3], wanted[4] = progress[N_ROUNDS] + 1, 0, n_starts - 1
    return (
        end <= len(kept.row)
        and wanted[1] <= len(kept.starts)
        and wanted[2] <= len(kept.ends)
        and wanted[4] <= len(kept.batches)
    )


@helper
def _fits(kept: Kept) -> bool:
    """Return whether all buffers hold the rows of this round, and the calls their batches."""
    for f in range(len(kept.room)):
        for k in range(3):
            if kept.counts[f, k] > kept.room[f, k]:
                return False
    n_lacking = 0
    for k in range(len(kept.state_rooms)):
        n_lacking += kept.next_used[kept.state_rooms[k, 0]] > kept.state_rooms[k, 1]
    return n_lacking == 0


@helper
def _put_calls(kept: Kept) -> int:
    """Write the batches of every stage one behind the other; returns how many stages have any."""
    n_calls = n_pairs = 0
    for stage in range(N_STAGES):
        first = n_pairs
        if stage == BATCH_STAGE:
            n = kept.progress[N_BATCHES]
            kept.pairs[first : first + n] = kept.batches[:n]
            n_pairs += n
        else:
            n_pairs = _put_whole(kept, stage, first)
        if n_pairs > first:
            own = kept.calls[n_calls]
            own[0], own[1] = kept.programs[stage, 0], kept.programs[stage, 1]
            own[2], own[3] = address_of(kept.pairs) + _PAIR_BYTES * first, n_pairs - first
            n_calls += 1
    return n_calls


@helper
def _put_whole(kept: Kept, stage: int, at: int) -> int:
    """Write all rows of each function that has any, batch by batch where states do not follow on.

    Returns where the pairs end.
    """
    counts, pairs = kept.counts, kept.pairs
    for t in range(len(kept.spaces)):
        if counts[t, N_OF] == 0 or not kept.has_steps[stage, t]:
            continue
        if counts[t, FOLLOWS] == 0 and kept.addresses_states[stage, t]:
            for b in range(counts[t, N_BATCHES_OF]):
                pairs[at, 0], pairs[at, 1] = t, b
                at += 1
        else:
            pairs[at, 0], pairs[at, 1] = t, ALL_ROWS
            at += 1
    return at


@helper
def _go_on(kept: Kept) -> None:
    """Let what was laid out last count as one more round."""
    progress = kept.progress
    kept.used[:] = kept.next_used
    progress[N_STARTS] += progress[N_BATCHES] + 1
    progress[BASE] = kept.state[N_RECORDED]
    kept.ends[progress[N_ROUNDS], 0] = progress[BASE]
    kept.ends[progress[N_ROUNDS], 1] = progress[N_STARTS]
    progress[N_ROUNDS] += 1
