"""One graph segment of a running program, from its log to its values, without Python.

Two tables have the addresses of all arrays, which are reused from segment to segment and from
mini-batch to mini-batch (live_segments.py). Errors and insufficient capacity are returned as a code
before any result counts, so that the same segment can be tried again. A segment of eight instances
takes 20 to 50 us; going through Python would take another 12 us.
"""

from __future__ import annotations

from typing import NamedTuple

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import (
    WORD_BYTES,
    call,
    call_for_number,
    count_cycles,
    get_address,
    store_atomic,
    view_arrays,
)
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.backends.compiled.arguments import put_parts
from dynbatch.harness.engine.lowering.plan import FORWARD as FORWARD_STAGES
from dynbatch.harness.engine.rows.fields import FieldArrays
from dynbatch.harness.engine.rows.filling import (
    FILLED,
    Arrays,
    fill_fields,
    fill_pulls,
    place_fields,
)
from dynbatch.harness.engine.rows.row_order import FOLLOWS, Source, assign_rows
from dynbatch.harness.engine.rows.row_order import N_BATCHES as N_BATCHES_OF
from dynbatch.harness.engine.rows.row_order import N as N_OF
from dynbatch.harness.engine.rows.segments import ALL_ROWS
from dynbatch.harness.policies.parts.levels import batch_by_counters
from dynbatch.harness.programs.decode import (
    FAULT,
    FINE,
    N_ARGS,
    N_FIBERS,
    DecodingArrays,
    decode_log,
    measure_log,
)
from dynbatch.harness.programs.decode import N as N_RECORDED
from dynbatch.harness.programs.log import DONE, UNDONE
from dynbatch.harness.values.arrays import FlagTable, IntArray, IntTable, Longs, LongTable

# Entries of LiveArrays.progress: the progress of the mini-batch, and sizes of the current segment.
BASE, N_SEGMENTS, N_STARTS, N_BATCHES, N_VALUES, N_PROGRESS = range(6)
N_WANTED = 5  # vertices, entries of `starts`, segments, `values`, batches; log: see `decode_next`
# Entries of LiveArrays.how: addresses of functions that decode, plan and run a segment, their
# arguments, and the address of the table of the decoder's arrays.
DECODES, PLANS, RUNS, BASE_DEPTH, RESTARTS, REORDERS, CONTEXT, DECODED, N_HOW = range(9)
SCHEDULE, FORWARD, N_SPENT = range(3)
# Result codes other than decoding errors (dynbatch.harness.programs.decode), which are above 0.
MORE_RECORDED, NEW_FEEDS, MORE_ROWS, LACKING_CHILD, MORE_MEMORY = UNDONE, -2, -3, -4, -5
N_STAGES, BATCH_STAGE = len(FORWARD_STAGES), FORWARD_STAGES.index("batch")
_PAIR_BYTES = 8


class LiveArrays(NamedTuple):
    """Arrays of a layout and of the execution.

    Attributes without a description are those that dynbatch.harness.engine.rows.filling describes.

    Attributes:
        order: The schedules of all segments, concatenated.
        starts: Batch boundaries of all segments, concatenated.
        ends: For each segment, the vertices and the entries of `starts` up to its end.
        used: Occupied rows of each space before this segment.
        next_used: Occupied rows of each space after this segment.
        room: (n_functions, 3), capacities for Layout.room_wanted.
        state_rooms: (k, 2), the space of every buffer of states, and its capacity in rows.
        places: See AddressTable.
        parts: See AddressTable.
        programs: (3, 2), for each stage of FORWARD the function that runs it, or 0, and its
            argument.
        has_steps: (3, n_types), for each stage: the function has steps.
        addresses_states: (3, n_types), for each stage: the steps of the function address states.
        pairs: (k, 2), the batches of all stages.
        calls: (3, 4), see Team.
        flags: (k, 2), addresses of flags that are cleared before a segment, and their number.
        spent: Ticks of planning and of running segments.
    """

    log: IntArray
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
def run_segment(table: int, n_log: int) -> int:
    """Decode entries of the log, plan the segment that they describe, and compute it.

    Args:
        n_log: The number of entries.

    Returns:
        DONE, or another code of `decode_next` or `plan_next`. The completed part counts; if
        `plan_next` returned the code, the whole log was decoded.
    """
    kept = view_arrays(table, LiveArrays)
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
        call(how[RUNS], (how[CONTEXT], get_address(kept.calls), n_calls))
        spent[FORWARD] += count_cycles() - planned
    return DONE


@compiled
def decode_next(table: int, n_log: int, base: int, restart: int) -> int:
    """Decode entries of the log, see dynbatch.harness.programs.decode.

    Returns:
        DONE, an error of decoding, MORE_RECORDED with the required capacities in `wanted`, or
        NEW_FEEDS if blocks feed each other in a new way.
    """
    kept = view_arrays(table, LiveArrays)
    arrays = view_arrays(kept.how[DECODED], DecodingArrays)
    log, state, wanted = kept.log[:n_log], arrays.state, kept.wanted
    n, n_args, n_forked, deepest = measure_log(log, arrays.kind_args, arrays.first_name)
    wanted[0], wanted[1] = state[N_RECORDED] + n, state[N_ARGS] + n_args
    wanted[2], wanted[3] = state[N_FIBERS] + n_forked, deepest
    is_little = wanted[0] > len(arrays.types) or wanted[1] > len(arrays.args)
    if is_little or wanted[2] > len(arrays.fibers) or 2 * deepest > len(arrays.nested):
        return MORE_RECORDED
    decode_log(log, base, restart != 0, arrays)
    if state[FAULT] != FINE:
        return int(state[FAULT])
    for t in range(len(arrays.statics)):
        for u in range(len(arrays.statics)):
            if arrays.feeds[t, u] and not kept.known_feeds[t, u]:
                return NEW_FEEDS
    return DONE


@compiled
def plan_next(table: int, reorder: int) -> int:
    """Lay out the next segment, and write the calls that run it.

    Returns:
        The number of calls, or a code: MORE_ROWS with the required capacities in `wanted`,
        LACKING_CHILD, or MORE_MEMORY if buffers have too few rows.
    """
    kept = view_arrays(table, LiveArrays)
    decoded = view_arrays(kept.how[DECODED], DecodingArrays)
    if decoded.state[N_RECORDED] == kept.progress[BASE]:
        return 0
    code = _lay_out(kept, decoded, reorder != 0)
    if code != DONE:
        return code
    if not _fits(kept):
        return MORE_MEMORY
    put_parts(
        get_address(kept.places), get_address(kept.parts), len(kept.parts),
        get_address(kept.values),
        get_address(kept.bounds),
    )  # fmt: skip
    n_calls = _put_calls(kept)
    _go_on(kept, decoded.state[N_RECORDED])
    return n_calls


@helper
def _lay_out(kept: LiveArrays, decoded: DecodingArrays, reorder: bool) -> int:
    """Schedule the vertices decoded after the last segment as inline_depth does; assign their rows.

    The results are the schedule, the rows, `batches`, `counts`, `bounds`, `values` and `next_used`.
    They count after `_go_on`.
    """
    progress, base, end = kept.progress, kept.progress[BASE], decoded.state[N_RECORDED]
    types, phases, depths = decoded.types[base:end], decoded.depths[1], decoded.depths[2]
    order, starts = batch_by_counters(types, kept.follows, phases[base:end], depths[base:end])
    if not _has_room(kept, end, len(starts)):
        return MORE_ROWS
    first = progress[N_STARTS]
    kept.order[base:end] = order
    kept.starts[first : first + len(starts)] = starts
    kept.next_used[:] = kept.used
    source = Source(
        order, starts, decoded.arg_start[base : end + 1], decoded.args[: decoded.state[N_ARGS]],
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
    arrays = Arrays(kept.values, kept.bounds, kept.counts)
    if fill_fields(arrays, source, batches, fields) != FILLED:
        return LACKING_CHILD
    fill_pulls(arrays, fields, len(kept.spaces), decoded.pulled, base, decoded.pulled[:0])
    return DONE


@helper
def _has_room(kept: LiveArrays, end: int, n_starts: int) -> bool:
    """Return whether a schedule of n_starts - 1 batches fits, up to vertex `end`, see N_WANTED."""
    progress, wanted = kept.progress, kept.wanted
    wanted[0], wanted[1] = end, progress[N_STARTS] + n_starts
    wanted[2], wanted[3], wanted[4] = progress[N_SEGMENTS] + 1, 0, n_starts - 1
    return (
        end <= len(kept.row)
        and wanted[1] <= len(kept.starts)
        and wanted[2] <= len(kept.ends)
        and wanted[4] <= len(kept.batches)
    )


@helper
def _fits(kept: LiveArrays) -> bool:
    """Return whether all buffers have the capacity for the rows of this segment."""
    for f in range(len(kept.room)):
        for k in range(3):
            if kept.counts[f, k] > kept.room[f, k]:
                return False
    n_lacking = 0
    for k in range(len(kept.state_rooms)):
        n_lacking += kept.next_used[kept.state_rooms[k, 0]] > kept.state_rooms[k, 1]
    return n_lacking == 0


@helper
def _put_calls(kept: LiveArrays) -> int:
    """Write the concatenated batches of every stage; return the number of stages with batches."""
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
            own[2], own[3] = get_address(kept.pairs) + _PAIR_BYTES * first, n_pairs - first
            n_calls += 1
    return n_calls


@helper
def _put_whole(kept: LiveArrays, stage: int, at: int) -> int:
    """Write one batch of all rows for each function, or its batches if states are not consecutive.

    Returns:
        The end of the pairs.
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
def _go_on(kept: LiveArrays, end: int) -> None:
    """Count the segment that was laid out last, up to vertex `end`, as completed."""
    progress = kept.progress
    kept.used[:] = kept.next_used
    progress[N_STARTS] += progress[N_BATCHES] + 1
    progress[BASE] = end
    kept.ends[progress[N_SEGMENTS], 0] = progress[BASE]
    kept.ends[progress[N_SEGMENTS], 1] = progress[N_STARTS]
    progress[N_SEGMENTS] += 1
