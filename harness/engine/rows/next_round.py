"""The next round of a program that is still running: from its log to rows, without Python.

Everything is found in one table of arrays that stay from round to round and from mini-batch to
mini-batch (harness.engine.kept_arrays). What is wrong, or needs more room, is returned as a number
before anything counts as done, so that the same round can be tried again.
"""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.compiler.pointers import word
from harness.compiler.registry import helper
from harness.engine.rows.array_table import (
    part_int32,
    rows_int32,
    rows_int64,
    view_flags,
    view_int32,
    view_int64,
)
from harness.engine.rows.counting import N_COUNTS, count, place
from harness.engine.rows.field_filling import FILLED, fill_in, fill_pulls
from harness.engine.rows.fields import N_OF_FUNCTION, N_OF_GATHER
from harness.engine.rows.row_order import assign_rows, order_as_read
from harness.policies.parts.levels import by_counters
from harness.programs.decode import (
    FAULT,
    FINE,
    N_ARGS,
    N_FIBERS,
    N,
    decoded,
    measured,
)

# Arrays of the table: of a decoder (harness.programs.decoder), ...
LOG, KIND_TYPES, KIND_ARGS, FIRST_NAME, NAMES, STATICS, N_SLOTS, FITS, NEEDS, STATE = range(10)
FIBERS, NESTED, TYPES, COUNTERS, DEPTHS, ARG_START, ARGS, PULLED, FEEDS, KNOWN = range(10, 20)
# ... of a layout: ORDER and STARTS are those of the schedules of all rounds, one behind the other;
# ENDS: of each round the vertices and the entries of STARTS up to its end; ...
ROW, ORDER, STARTS, ENDS, USED, NEXT_USED, SPACES, FOLLOWS, GATHERS, SLOTS = range(20, 30)
PULLS, VALUES, BOUNDS, COUNTS, BATCHES, PROGRESS, WANTED = range(30, 37)
N_OF_ROWS = 37
# ... where PROGRESS says how far the mini-batch is, and how much this round has of what has room.
BASE, N_ROUNDS, N_STARTS, N_BATCHES, N_VALUES, N_PROGRESS = range(6)
N_WANTED = 5  # vertices, entries of STARTS, rounds, VALUES, batches; of a log see `decode_next`
# Codes of what else there may be but faults (harness.programs.decode), which are above 0.
DONE, MORE_RECORDED, NEW_FEEDS, MORE_ROWS, LACKING_CHILD, MORE_MEMORY = 0, -1, -2, -3, -4, -5
UNPLANNED = -6  # a round is decoded, and to be planned once there is room


@compiled
def decode_next(table: int, n_log: int, base: int, restart: int) -> int:
    """Decode so many entries of the log; see harness.programs.decode.

    Returns DONE, a fault, MORE_RECORDED where WANTED says how much room is needed, or NEW_FEEDS
    where blocks feed each other in a way that is not known.
    """
    log, state = part_int32(table, LOG, 0, n_log), view_int64(table, STATE)
    kind_args, first_name = view_int32(table, KIND_ARGS), view_int32(table, FIRST_NAME)
    types, fibers = view_int32(table, TYPES), view_int64(table, FIBERS)
    args, nested = view_int32(table, ARGS), view_int64(table, NESTED)
    wanted, room, n_types = (
        view_int64(table, WANTED),
        len(types),
        len(view_int32(table, STATICS)),
    )
    n, n_args, n_forked, deepest = measured(log, kind_args, first_name)
    wanted[0], wanted[1] = state[N] + n, state[N_ARGS] + n_args
    wanted[2], wanted[3] = state[N_FIBERS] + n_forked, deepest
    is_little = wanted[0] > room or wanted[1] > len(args) or wanted[2] > len(fibers)
    if is_little or 2 * deepest > len(nested):
        return MORE_RECORDED
    feeds = view_flags(table, FEEDS, (n_types, n_types))
    pulls = rows_int32(table, PULLED, room)
    n_slots = word(table, 2 * FITS + 1) // (n_types * n_types)
    decoded(
        log,
        (view_int32(table, KIND_TYPES), kind_args, first_name, view_int32(table, NAMES)),
        (
            view_int32(table, STATICS),
            view_int32(table, N_SLOTS),
            view_flags(table, FITS, (n_types, n_slots, n_types)),
            view_flags(table, NEEDS, (n_types, len(pulls))),
        ),
        base,
        restart != 0,
        state,
        fibers,
        nested,
        (
            types,
            view_int64(table, COUNTERS),
            rows_int32(table, DEPTHS, room),
            view_int32(table, ARG_START),
        ),
        args,
        pulls,
        feeds,
    )
    if state[FAULT] != FINE:
        return int(state[FAULT])
    known = view_flags(table, KNOWN, (n_types, n_types))
    for t in range(n_types):
        for u in range(n_types):
            if feeds[t, u] and not known[t, u]:
                return NEW_FEEDS
    return DONE


@helper
def lay_out_next(table: int, reorder: int) -> int:
    """Schedule what was decoded since the last round, as inline_depth does, and give it rows.

    Written are the schedule, the rows, BATCHES, COUNTS, BOUNDS and VALUES (harness.engine.rows.
    layout), and NEXT_USED; `go_on` lets them count. Returns DONE, MORE_ROWS where WANTED says how
    much room is needed, or LACKING_CHILD.
    """
    progress, state = view_int64(table, PROGRESS), view_int64(table, STATE)
    base, end, room = progress[BASE], state[N], len(view_int32(table, TYPES))
    types = part_int32(table, TYPES, base, end)
    phases = part_int32(table, DEPTHS, room + base, room + end)
    depths = part_int32(table, DEPTHS, 2 * room + base, 2 * room + end)
    order, starts = by_counters(types, view_int32(table, FOLLOWS), phases, depths)
    if not _has_room(table, end, len(starts)):
        return MORE_ROWS
    first = progress[N_STARTS]
    part_int32(table, ORDER, base, end)[:] = order
    part_int32(table, STARTS, first, first + len(starts))[:] = starts
    arg_start = part_int32(table, ARG_START, base, end + 1)
    args = part_int32(table, ARGS, 0, state[N_ARGS])
    if reorder != 0:
        of_one_round = part_int32(table, ROW, 0, 0)
        order = order_as_read(order, starts, arg_start, args, of_one_round, base)
    row, spaces = view_int32(table, ROW), view_int32(table, SPACES)
    used = view_int64(table, NEXT_USED)
    used[:] = view_int64(table, USED)
    batches, first_row = assign_rows(order, starts, types, spaces, used, row[base:])
    rows_int32(table, BATCHES, 2)[: len(batches)] = batches
    counts = rows_int64(table, COUNTS, N_COUNTS)
    counts[:] = 0
    count(order, starts, batches, first_row, arg_start, counts)
    gathers, pulls = rows_int32(table, GATHERS, 3), rows_int32(table, PULLS, 2)
    bounds = rows_int64(table, BOUNDS, 2)
    bounds[:] = place(counts, len(spaces), gathers, pulls)
    progress[N_BATCHES] = len(batches)
    progress[N_VALUES] = bounds[-1, 0] + bounds[-1, 1]
    if progress[N_VALUES] > len(view_int64(table, VALUES)):
        view_int64(table, WANTED)[3] = progress[N_VALUES]
        return MORE_ROWS
    values, slots = view_int64(table, VALUES), view_int32(table, SLOTS)
    lacking = fill_in(
        values, bounds, counts, len(spaces), order, starts, batches, first_row, gathers, slots,
        arg_start, args, row,
    )  # fmt: skip
    if lacking != FILLED:
        return LACKING_CHILD
    first_pull = N_OF_FUNCTION * len(counts) + N_OF_GATHER * len(gathers)
    fill_pulls(values, bounds, first_pull, pulls, view_int32(table, PULLED), room, base)
    return DONE


@helper
def _has_room(table: int, end: int, n_starts: int) -> bool:
    """Return whether a schedule of n_starts - 1 batches fits, up to vertex `end`; see WANTED."""
    progress, wanted = view_int64(table, PROGRESS), view_int64(table, WANTED)
    wanted[0], wanted[1] = end, progress[N_STARTS] + n_starts
    wanted[2], wanted[3], wanted[4] = progress[N_ROUNDS] + 1, 0, n_starts - 1
    return (
        end <= len(view_int32(table, ROW))
        and wanted[1] <= len(view_int32(table, STARTS))
        and 2 * wanted[2] <= len(view_int32(table, ENDS))
        and 2 * wanted[4] <= len(view_int32(table, BATCHES))
    )


@helper
def go_on(table: int) -> None:
    """Let what was laid out last count as one more round."""
    progress, state = view_int64(table, PROGRESS), view_int64(table, STATE)
    view_int64(table, USED)[:] = view_int64(table, NEXT_USED)
    progress[N_STARTS] += progress[N_BATCHES] + 1
    progress[BASE] = state[N]
    ends = rows_int32(table, ENDS, 2)
    ends[progress[N_ROUNDS], 0] = progress[BASE]
    ends[progress[N_ROUNDS], 1] = progress[N_STARTS]
    progress[N_ROUNDS] += 1
