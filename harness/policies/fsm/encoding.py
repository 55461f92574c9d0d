"""States of ED-Batch's machines: what a policy sees of the ready vertices.

A state is a tuple of type ids. T+ are the batchable types with ready vertices:
"base" is T+ in increasing order; "max" is the same with the type of most ready vertices once more
at the end; "sort" is T+ by falling number of ready vertices. Among equals the smaller id is first.

Source: Chen et al., ICML 2023, Sec. 2.2, and their release, dynet/ooc-scheduler.cc (schedule_impl).
"""

from __future__ import annotations

from harness.compiler.registry import helper
from harness.policies.parts.ready import Ready
from harness.values.arrays import Ints
from harness.values.graph import UNBATCHABLE

ENCODINGS = ("base", "max", "sort")
BASE, MAX, SORT = range(3)


@helper
def encode(ready: Ready, encoding: int, key: Ints) -> int:
    """Write the state into `key` (n_types + 1,) and return its length."""
    head, tail = ready.head, ready.tail
    length = 0
    modal, most = UNBATCHABLE, 0
    for t in range(UNBATCHABLE + 1, len(head)):
        size = tail[t] - head[t]
        if size == 0:
            continue
        place = length
        if encoding == SORT:
            while place > 0 and tail[key[place - 1]] - head[key[place - 1]] < size:
                key[place] = key[place - 1]
                place -= 1
        key[place] = t
        length += 1
        if size > most:
            modal, most = t, size
    if encoding == MAX:
        key[length] = modal
        length += 1
    return length


@helper
def n_actions(encoding: int, length: int) -> int:
    """Return how many types a state of that length offers; the first entries of its tuple."""
    return length - 1 if encoding == MAX else length
