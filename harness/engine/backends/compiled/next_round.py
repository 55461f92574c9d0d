"""From the next round's rows to what a team calls: room, addresses and calls, without Python."""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.compiler.pointers import address_of, word
from harness.compiler.registry import helper
from harness.engine.backends.compiled.arguments import put_parts
from harness.engine.lowering.plan import FORWARD
from harness.engine.rows.array_table import (
    rows_int32,
    rows_int64,
    view_flags,
    view_int32,
    view_int64,
)
from harness.engine.rows.counting import FOLLOWS, N_COUNTS
from harness.engine.rows.counting import N_BATCHES as N_BATCHES_OF
from harness.engine.rows.counting import N as N_OF
from harness.engine.rows.layout import ALL_ROWS
from harness.engine.rows.next_round import (
    BASE,
    BATCHES,
    BOUNDS,
    COUNTS,
    DONE,
    MORE_MEMORY,
    N_BATCHES,
    N_OF_ROWS,
    NEXT_USED,
    PROGRESS,
    SPACES,
    STATE,
    VALUES,
    go_on,
    lay_out_next,
)
from harness.programs.decode import N as N_RECORDED
from harness.values.arrays import IntTable

# More arrays of the table: ROOM (n_functions, 3): see Layout.room_wanted. STATE_ROOMS (k, 2): of
# every buffer of states its space, and how many rows fit. PLACES, PARTS: see Found. LOOPS (3, 2):
# of each of FORWARD the address of its loop, or 0, and that of its arguments. HAS_STEPS,
# ADDRESSES_STATES (3, n_types): of a stage's functions. PAIRS (k, 2): batches of all stages. CALLS
# (3, 4): see Team.
ROOM, STATE_ROOMS, PLACES, PARTS, LOOPS, HAS_STEPS, ADDRESSES_STATES, PAIRS, CALLS = range(
    N_OF_ROWS, N_OF_ROWS + 9
)
N_OF_CALLS = N_OF_ROWS + 9
N_STAGES, BATCH_STAGE = len(FORWARD), FORWARD.index("batch")
_CALL_WORDS, _PAIR_BYTES = 4, 8


@compiled
def plan_next(table: int, reorder: int) -> int:
    """Lay the next round out, and write down the calls that run it.

    Returns how many these are, or what is lacking: see harness.engine.rows.next_round, and
    MORE_MEMORY where rows of buffers are too few.
    """
    if view_int64(table, STATE)[N_RECORDED] == view_int64(table, PROGRESS)[BASE]:
        return 0
    code = lay_out_next(table, reorder)
    if code != DONE:
        return code
    if not _fits(table):
        return MORE_MEMORY
    put_parts(
        word(table, 2 * PLACES), word(table, 2 * PARTS), word(table, 2 * PARTS + 1) // 2,
        word(table, 2 * VALUES), word(table, 2 * BOUNDS),
    )  # fmt: skip
    n_calls = _put_calls(table)
    go_on(table)
    return n_calls


@helper
def _fits(table: int) -> bool:
    """Return whether all buffers hold the rows of this round, and the calls their batches."""
    counts, room = rows_int64(table, COUNTS, N_COUNTS), rows_int64(table, ROOM, 3)
    for f in range(len(room)):
        for k in range(3):
            if counts[f, k] > room[f, k]:
                return False
    used, rooms = view_int64(table, NEXT_USED), rows_int64(table, STATE_ROOMS, 2)
    n_lacking = 0
    for k in range(len(rooms)):
        n_lacking += used[rooms[k, 0]] > rooms[k, 1]
    return n_lacking == 0


@helper
def _put_calls(table: int) -> int:
    """Write the batches of every stage one behind the other; returns how many stages have any."""
    calls, loops = rows_int64(table, CALLS, _CALL_WORDS), rows_int64(table, LOOPS, 2)
    pairs, n_calls, n_pairs = rows_int32(table, PAIRS, 2), 0, 0
    for stage in range(N_STAGES):
        first = n_pairs
        if stage == BATCH_STAGE:
            n = view_int64(table, PROGRESS)[N_BATCHES]
            pairs[first : first + n] = rows_int32(table, BATCHES, 2)[:n]
            n_pairs += n
        else:
            n_pairs = _put_whole(table, stage, pairs, first)
        if n_pairs > first:
            calls[n_calls, 0], calls[n_calls, 1] = loops[stage, 0], loops[stage, 1]
            calls[n_calls, 2] = address_of(pairs) + _PAIR_BYTES * first
            calls[n_calls, 3] = n_pairs - first
            n_calls += 1
    return n_calls


@helper
def _put_whole(table: int, stage: int, pairs: IntTable, at: int) -> int:
    """Write all rows of each function that has any, batch by batch where states do not follow on.

    Returns where the pairs end.
    """
    counts = rows_int64(table, COUNTS, N_COUNTS)
    n_types = len(view_int32(table, SPACES))
    has_steps = view_flags(table, HAS_STEPS, (N_STAGES, n_types))
    addresses_states = view_flags(table, ADDRESSES_STATES, (N_STAGES, n_types))
    for t in range(n_types):
        if counts[t, N_OF] == 0 or not has_steps[stage, t]:
            continue
        if counts[t, FOLLOWS] == 0 and addresses_states[stage, t]:
            for b in range(counts[t, N_BATCHES_OF]):
                pairs[at, 0], pairs[at, 1] = t, b
                at += 1
        else:
            pairs[at, 0], pairs[at, 1] = t, ALL_ROWS
            at += 1
    return at
