"""The next round of a program that is still running: from its log to rows, without Python.

Everything is found in one table of arrays that stay from round to round and from mini-batch to
mini-batch (harness.engine.kept_arrays). What is wrong, or needs more room, is returned as a number
before anything counts as done, so that the same round can be tried again.
"""

from __future__ import annotations

from typing import Any

from harness.engine.cpu_kernels.addresses import (
    INLINE,
    flags,
    int32_matrix,
    int32_part,
    int32_vector,
    int64_matrix,
    int64_vector,
    word,
)
from harness.engine.rows.counting import N_COUNTS, count, place
from harness.engine.rows.field_filling import FILLED, fill_in, fill_pulls
from harness.engine.rows.fields import N_OF_FUNCTION, N_OF_GATHER
from harness.engine.rows.row_order import assign_rows, order_as_read
from harness.machine.compiled import compiled_with
from harness.policies.parts.inline import by_counters
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


@compiled_with(**INLINE)
def decode_next(table: int, n_log: int, base: int, restart: int) -> Any:  # pragma: no cover
    """Decode so many entries of the log; see harness.programs.decode.

    Returns DONE, a fault, MORE_RECORDED where WANTED says how much room is needed, or NEW_FEEDS
    where blocks feed each other in a way that is not known.
    """
    log, state = int32_part(table, LOG, 0, n_log), int64_vector(table, STATE)
    kind_args, first_name = int32_vector(table, KIND_ARGS), int32_vector(table, FIRST_NAME)
    types, fibers = int32_vector(table, TYPES), int64_vector(table, FIBERS)
    args, nested = int32_vector(table, ARGS), int64_vector(table, NESTED)
    wanted, room, n_types = (
        int64_vector(table, WANTED),
        len(types),
        len(int32_vector(table, STATICS)),
    )
    n, n_args, n_forked, deepest = measured(log, kind_args, first_name)
    wanted[0], wanted[1] = state[N] + n, state[N_ARGS] + n_args
    wanted[2], wanted[3] = state[N_FIBERS] + n_forked, deepest
    is_little = wanted[0] > room or wanted[1] > len(args) or wanted[2] > len(fibers)
    if is_little or 2 * deepest > len(nested):
        return MORE_RECORDED
    feeds = flags(table, FEEDS, (n_types, n_types))
    pulls = int32_matrix(table, PULLED, room)
    n_slots = word(table, 2 * FITS + 1) // (n_types * n_types)
    decoded(
        log,
        (int32_vector(table, KIND_TYPES), kind_args, first_name, int32_vector(table, NAMES)),
        (
            int32_vector(table, STATICS),
            int32_vector(table, N_SLOTS),
            flags(table, FITS, (n_types, n_slots, n_types)),
            flags(table, NEEDS, (n_types, len(pulls))),
        ),
        base,
        restart != 0,
        state,
        fibers,
        nested,
        (
            types,
            int64_vector(table, COUNTERS),
            int32_matrix(table, DEPTHS, room),
            int32_vector(table, ARG_START),
        ),
        args,
        pulls,
        feeds,
    )
    if state[FAULT] != FINE:
        return state[FAULT]
    known = flags(table, KNOWN, (n_types, n_types))
    for t in range(n_types):
        for u in range(n_types):
            if feeds[t, u] and not known[t, u]:
                return NEW_FEEDS
    return DONE


@compiled_with(**INLINE)
def lay_out_next(table: int, reorder: int) -> int:  # pragma: no cover - compiled
    """Schedule what was decoded since the last round, as inline_depth does, and give it rows.

    Written are the schedule, the rows, BATCHES, COUNTS, BOUNDS and VALUES (harness.engine.rows.
    layout), and NEXT_USED; `go_on` lets them count. Returns DONE, MORE_ROWS where WANTED says how
    much room is needed, or LACKING_CHILD.
    """
    progress, state = int64_vector(table, PROGRESS), int64_vector(table, STATE)
    base, end, room = progress[BASE], state[N], len(int32_vector(table, TYPES))
    types = int32_part(table, TYPES, base, end)
    phases = int32_part(table, DEPTHS, room + base, room + end)
    depths = int32_part(table, DEPTHS, 2 * room + base, 2 * room + end)
    order, starts = by_counters(types, int32_vector(table, FOLLOWS), phases, depths)
    if not _has_room(table, end, len(starts)):
        return MORE_ROWS
    first = progress[N_STARTS]
    int32_part(table, ORDER, base, end)[:] = order
    int32_part(table, STARTS, first, first + len(starts))[:] = starts
    arg_start = int32_part(table, ARG_START, base, end + 1)
    args = int32_part(table, ARGS, 0, state[N_ARGS])
    if reorder != 0:
        of_one_round = int32_part(table, ROW, 0, 0)
        order = order_as_read(order, starts, arg_start, args, of_one_round, base)
    row, spaces = int32_vector(table, ROW), int32_vector(table, SPACES)
    used = int64_vector(table, NEXT_USED)
    used[:] = int64_vector(table, USED)
    batches, first_row = assign_rows(order, starts, types, spaces, used, row[base:])
    int32_matrix(table, BATCHES, 2)[: len(batches)] = batches
    counts = int64_matrix(table, COUNTS, N_COUNTS)
    counts[:] = 0
    count(order, starts, batches, first_row, arg_start, counts)
    gathers, pulls = int32_matrix(table, GATHERS, 3), int32_matrix(table, PULLS, 2)
    bounds = int64_matrix(table, BOUNDS, 2)
    bounds[:] = place(counts, len(spaces), gathers, pulls)
    progress[N_BATCHES] = len(batches)
    progress[N_VALUES] = bounds[-1, 0] + bounds[-1, 1]
    if progress[N_VALUES] > len(int64_vector(table, VALUES)):
        int64_vector(table, WANTED)[3] = progress[N_VALUES]
        return MORE_ROWS
    values, slots = int64_vector(table, VALUES), int32_vector(table, SLOTS)
    lacking = fill_in(
        values, bounds, counts, len(spaces), order, starts, batches, first_row, gathers, slots,
        arg_start, args, row,
    )  # fmt: skip
    if lacking != FILLED:
        return LACKING_CHILD
    first_pull = N_OF_FUNCTION * len(counts) + N_OF_GATHER * len(gathers)
    fill_pulls(values, bounds, first_pull, pulls, int32_vector(table, PULLED), room, base)
    return DONE


@compiled_with(**INLINE)
def _has_room(table: int, end: int, n_starts: int) -> bool:  # pragma: no cover - compiled
    """Whether a schedule of n_starts - 1 batches fits, up to vertex `end`; else WANTED says it."""
    progress, wanted = int64_vector(table, PROGRESS), int64_vector(table, WANTED)
    wanted[0], wanted[1] = end, progress[N_STARTS] + n_starts
    wanted[2], wanted[3], wanted[4] = progress[N_ROUNDS] + 1, 0, n_starts - 1
    return (
        end <= len(int32_vector(table, ROW))
        and wanted[1] <= len(int32_vector(table, STARTS))
        and 2 * wanted[2] <= len(int32_vector(table, ENDS))
        and 2 * wanted[4] <= len(int32_vector(table, BATCHES))
    )


@compiled_with(**INLINE)
def go_on(table: int) -> None:  # pragma: no cover - compiled
    """Let what was laid out last count as one more round."""
    progress, state = int64_vector(table, PROGRESS), int64_vector(table, STATE)
    int64_vector(table, USED)[:] = int64_vector(table, NEXT_USED)
    progress[N_STARTS] += progress[N_BATCHES] + 1
    progress[BASE] = state[N]
    ends = int32_matrix(table, ENDS, 2)
    ends[progress[N_ROUNDS], 0] = progress[BASE]
    ends[progress[N_ROUNDS], 1] = progress[N_STARTS]
    progress[N_ROUNDS] += 1
