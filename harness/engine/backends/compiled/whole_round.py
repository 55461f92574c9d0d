"""A round from its log to its values in one call, which compiled programs make by themselves.

Python comes by where something is lacking, and once a mini-batch: a round of eight instances takes
20 to 50 us, and to go through Python 12.
"""

from __future__ import annotations

from typing import Any

from harness.engine.backends.compiled.next_round import CALLS, N_OF_CALLS
from harness.engine.cpu_kernels.addresses import INLINE, int64_matrix, int64_vector, word
from harness.engine.cpu_kernels.atomics import store
from harness.engine.cpu_kernels.cycles import cycles
from harness.engine.rows.next_round import DONE, UNPLANNED
from harness.machine.compiled import compiled_with
from harness.machine.native import call_number

# More arrays of the table: HOW: addresses of what decodes, plans and runs a round, and what they
# take; FLAGS (k, 2): addresses of flags that are cleared before a round, and how many follow;
# SPENT: ticks that went by while rounds were planned and while they ran.
HOW, FLAGS, SPENT = range(N_OF_CALLS, N_OF_CALLS + 3)
N_OF_ROUNDS = N_OF_CALLS + 3
DECODES, PLANS, RUNS, BASE_DEPTH, RESTARTS, REORDERS, CONTEXT, N_HOW = range(8)
SCHEDULE, FORWARD, N_SPENT = range(3)
_BYTES = 8


@compiled_with(**INLINE)
def whole_round(table: int, n_log: int) -> Any:  # pragma: no cover - compiled
    """Decode so many entries of the log, plan what they say, and compute it.

    Returns DONE, what `decode_next` returns else, or UNPLANNED.
    """
    how, spent = int64_vector(table, HOW), int64_vector(table, SPENT)
    decoding = (table, n_log, how[BASE_DEPTH], how[RESTARTS])
    code = call_number(how[DECODES], decoding)
    if code != DONE:
        return code
    began: int = cycles()  # type: ignore[call-arg]
    n_calls = call_number(how[PLANS], (table, how[REORDERS]))
    planned = cycles()
    spent[SCHEDULE] += planned - began
    if n_calls < 0:
        return UNPLANNED
    if n_calls > 0:
        _clear_flags(table)
        call_number(how[RUNS], (how[CONTEXT], word(table, 2 * CALLS), n_calls))
        ended = cycles()
        spent[FORWARD] += ended - planned
    return DONE


@compiled_with(**INLINE)
def _clear_flags(table: int) -> None:  # pragma: no cover - compiled
    found = int64_matrix(table, FLAGS, 2)
    for k in range(len(found)):
        for j in range(found[k, 1]):
            store(found[k, 0] + _BYTES * j, 0)
