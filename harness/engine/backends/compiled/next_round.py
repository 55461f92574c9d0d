"""From the next round's rows to what a team calls: room, addresses and calls, without Python."""

from __future__ import annotations

from typing import Any

from harness.engine.cpu_kernels.addresses import (
    INLINE,
    flags,
    int32_matrix,
    int32_vector,
    int64_matrix,
    int64_vector,
    put_parts,
)
from harness.engine.rows.counting import FOLLOWS, N_COUNTS
from harness.engine.rows.counting import N_BATCHES as N_BATCHES_OF
from harness.engine.rows.counting import N as N_OF
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
from harness.engine.rows.rounds import ALL_ROWS, STAGES
from harness.machine.compiled import compiled_with
from harness.programs.decode import N as N_RECORDED

# More arrays of the table: ROOM (n_functions, 3): see Layout.room_wanted. STATE_ROOMS (k, 2): of
# every buffer of states its space, and how many rows fit. PLACES, PARTS: see Found. LOOPS (3, 2):
# of each of STAGES the address of its loop, or 0, and that of its arguments. HAS_STEPS,
# ADDRESSES_STATES (3, n_types): of a stage's functions. PAIRS (k, 2): batches of all stages. CALLS
# (3, 4): see Team.
ROOM, STATE_ROOMS, PLACES, PARTS, LOOPS, HAS_STEPS, ADDRESSES_STATES, PAIRS, CALLS = range(
    N_OF_ROWS, N_OF_ROWS + 9
)
N_OF_CALLS = N_OF_ROWS + 9
N_STAGES, BATCH_STAGE = len(STAGES), STAGES.index("batch")
_CALL_WORDS, _PAIR_BYTES = 4, 8


@compiled_with(**INLINE)
def plan_next(table: int, reorder: int) -> Any:  # pragma: no cover - compiled
    """Lay the next round out, and write down the calls that run it.

    Returns how many these are, or what is lacking: see harness.engine.rows.next_round, and
    MORE_MEMORY where rows of buffers are too few.
    """
    if int64_vector(table, STATE)[N_RECORDED] == int64_vector(table, PROGRESS)[BASE]:
        return 0
    code = lay_out_next(table, reorder)
    if code != DONE:
        return code
    if not _fits(table):
        return MORE_MEMORY
    put_parts(
        int64_matrix(table, PLACES, 2),
        int64_matrix(table, PARTS, 2),
        int64_vector(table, VALUES),
        int64_matrix(table, BOUNDS, 2),
    )
    n_calls = _put_calls(table)
    go_on(table)
    return n_calls


@compiled_with(**INLINE)
def _fits(table: int) -> bool:  # pragma: no cover - compiled
    """Whether all buffers hold the rows of this round, and the calls their batches."""
    counts, room = int64_matrix(table, COUNTS, N_COUNTS), int64_matrix(table, ROOM, 3)
    for f in range(len(room)):
        for k in range(3):
            if counts[f, k] > room[f, k]:
                return False
    used, rooms = int64_vector(table, NEXT_USED), int64_matrix(table, STATE_ROOMS, 2)
    n_lacking = 0
    for k in range(len(rooms)):
        n_lacking += used[rooms[k, 0]] > rooms[k, 1]
    return n_lacking == 0


@compiled_with(**INLINE)
def _put_calls(table: int) -> Any:  # pragma: no cover - compiled
    """Of every stage the batches that it has, one behind the other; returns how many stages."""
    calls, loops = int64_matrix(table, CALLS, _CALL_WORDS), int64_matrix(table, LOOPS, 2)
    pairs, n_calls, n_pairs = int32_matrix(table, PAIRS, 2), 0, 0
    for stage in range(N_STAGES):
        first = n_pairs
        if stage == BATCH_STAGE:
            n = int64_vector(table, PROGRESS)[N_BATCHES]
            pairs[first : first + n] = int32_matrix(table, BATCHES, 2)[:n]
            n_pairs += n
        else:
            n_pairs = _put_whole(table, stage, pairs, first)
        if n_pairs > first:
            calls[n_calls, 0], calls[n_calls, 1] = loops[stage, 0], loops[stage, 1]
            calls[n_calls, 2] = pairs.ctypes.data + _PAIR_BYTES * first
            calls[n_calls, 3] = n_pairs - first
            n_calls += 1
    return n_calls


@compiled_with(**INLINE)
def _put_whole(table: int, stage: int, pairs: Any, at: int) -> Any:  # pragma: no cover - compiled
    """All rows of each function that has any, batch by batch where states do not follow on.

    Returns where the pairs end.
    """
    counts = int64_matrix(table, COUNTS, N_COUNTS)
    n_types = len(int32_vector(table, SPACES))
    has_steps = flags(table, HAS_STEPS, (N_STAGES, n_types))
    addresses_states = flags(table, ADDRESSES_STATES, (N_STAGES, n_types))
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
