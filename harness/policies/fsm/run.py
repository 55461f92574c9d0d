"""ED-Batch's batching loop under a learned choice for every state, and a fallback for new ones.

Source: Chen et al., ICML 2023, Alg. 1.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.policies.agenda import average_depths, shallowest
from harness.policies.fsm.encoding import encode
from harness.policies.fsm.states import UNSEEN, States, find
from harness.policies.parts.extracted import Extracted, extract, remove
from harness.policies.parts.ready import N_EXECUTED, Ready, commit, finish, n_ready, start
from harness.policies.sufficient import safest
from harness.values.arrays import Flags, Ints
from harness.values.graph import UNBATCHABLE

LAST, AGENDA, SUFFICIENT = range(3)  # as harness.contracts.policy.FALLBACKS


@compiled
def run(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, cheap: Flags,
    states: States, choices: Ints, encoding: int, fallback: int,
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    """Return order and starts of the schedule, and the state of every decision.

    choices (n_states,): the type that each state takes. States that are not in the table, UNSEEN
    among the returned ones, take what `fallback` says.
    """
    ready = start(types, arg_start, args, follows)
    key = np.empty(len(follows) + 1, np.int32)
    decided = np.empty(len(types), np.int32)
    n_decided = 0
    average = np.zeros(0)
    # Nothing is counted until a state is unseen: arrays of no vertices.
    extracted = extract(types[:0], arg_start[:1], args[:0], len(follows))
    while ready.counts[N_EXECUTED] < len(types):
        if n_ready(ready, UNBATCHABLE) > 0:
            commit(ready, UNBATCHABLE)
            continue
        length = encode(ready, encoding, key)
        state = find(states, key, length)
        decided[n_decided] = state
        n_decided += 1
        if state != UNSEEN:
            t = choices[state]
        elif fallback == AGENDA:
            if len(average) == 0:
                average = average_depths(types, arg_start, args, follows)
            t = shallowest(ready, average, cheap)
        elif fallback == SUFFICIENT:
            if len(extracted.stack) == 0:
                extracted = _remaining(ready, arg_start, args)
            t = safest(ready, extracted, False)
        else:
            t = key[length - 1]
        if len(extracted.stack) > 0:
            for v in ready.queue[ready.head[t] : ready.tail[t]]:
                remove(extracted, ready, v)
        commit(ready, t)
    order, starts = finish(ready)
    return order, starts, decided[:n_decided]


@helper
def _remaining(ready: Ready, arg_start: Ints, args: Ints) -> Extracted:
    """Return the counts of what is not executed; what is carries no type, as if unbatchable."""
    types = ready.types.copy()
    for t in range(len(ready.leader)):
        for v in ready.queue[ready.first[t] : ready.head[t]]:
            types[v] = UNBATCHABLE
    return extract(types, arg_start, args, len(ready.leader))
