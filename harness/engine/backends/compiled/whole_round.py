"""A round from its log to its values in one call, which compiled programs make by themselves.

Python comes by where something is lacking, and once a mini-batch: a round of eight instances takes
20 to 50 us, and to go through Python 12.
"""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.compiler.pointers import (
    WORD_BYTES,
    call,
    call_for_number,
    count_cycles,
    store_atomic,
    word,
)
from harness.compiler.registry import helper
from harness.engine.backends.compiled.next_round import CALLS, N_OF_CALLS
from harness.engine.rows.array_table import rows_int64, view_int64
from harness.engine.rows.next_round import DONE, UNPLANNED

# More arrays of the table: HOW: addresses of what decodes, plans and runs a round, and what they
# take; FLAGS (k, 2): addresses of flags that are cleared before a round, and how many follow;
# SPENT: ticks that went by while rounds were planned and while they ran.
HOW, FLAGS, SPENT = range(N_OF_CALLS, N_OF_CALLS + 3)
N_OF_ROUNDS = N_OF_CALLS + 3
DECODES, PLANS, RUNS, BASE_DEPTH, RESTARTS, REORDERS, CONTEXT, N_HOW = range(8)
SCHEDULE, FORWARD, N_SPENT = range(3)


@compiled
def whole_round(table: int, n_log: int) -> int:
    """Decode so many entries of the log, plan what they say, and compute it.

    Returns DONE, what `decode_next` returns else, or UNPLANNED.
    """
    how, spent = view_int64(table, HOW), view_int64(table, SPENT)
    code = call_for_number(how[DECODES], (table, n_log, how[BASE_DEPTH], how[RESTARTS]))
    if code != DONE:
        return code
    began = count_cycles()
    n_calls = call_for_number(how[PLANS], (table, how[REORDERS]))
    planned = count_cycles()
    spent[SCHEDULE] += planned - began
    if n_calls < 0:
        return UNPLANNED
    if n_calls > 0:
        _clear_flags(table)
        call(how[RUNS], (how[CONTEXT], word(table, 2 * CALLS), n_calls))
        spent[FORWARD] += count_cycles() - planned
    return DONE


@helper
def _clear_flags(table: int) -> None:
    """Clear all flags."""
    found = rows_int64(table, FLAGS, 2)
    for k in range(len(found)):
        for j in range(found[k, 1]):
            store_atomic(found[k, 0] + WORD_BYTES * j, 0)
