"""|F(G^t)| for every type t, kept up to date while a schedule is made.

F(G^t) holds the remaining vertices of type t without a remaining ancestor of type t. An argument
edge (a, v) *carries* t while a remains and is of type t or has a carrying edge itself. Carrying
edges are counted per vertex and type; an edge stops carrying a type once and for all, so that all
updates of a whole schedule cost O(edges x types), whatever the order.

Source of G^t: Chen et al., "ED-Batch", ICML 2023, Fig. 2 (c).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.compiler.registry import helper
from harness.policies.parts.ready import Ready
from harness.values.arrays import Ints, IntTable


class Extracted(NamedTuple):
    """State of the counts.

    carrying (n, n_types): argument edges of each vertex that carry each type.
    n_frontier (n_types,): |F(G^t)|.
    stack (n,): scratch.
    """

    carrying: IntTable
    n_frontier: Ints
    stack: Ints


@helper
def extract(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> Extracted:
    """Return the counts before the first batch."""
    n = len(types)
    carrying = np.zeros((n, n_types), np.int32)
    n_frontier = np.zeros(n_types, np.int32)
    for v in range(n):
        for edge in range(arg_start[v], arg_start[v + 1]):
            arg = args[edge]
            for t in range(n_types):
                if carrying[arg, t] > 0 or types[arg] == t:
                    carrying[v, t] += 1
        if carrying[v, types[v]] == 0:
            n_frontier[types[v]] += 1
    return Extracted(carrying, n_frontier, np.empty(n, np.int32))


@helper
def remove(extracted: Extracted, ready: Ready, v: int) -> None:
    """Take a ready vertex out of the graph, before it is executed."""
    t = ready.types[v]
    extracted.n_frontier[t] -= 1
    # Of a ready vertex only its own type is carried on.
    extracted.stack[0] = v
    depth = 1
    while depth > 0:
        depth -= 1
        source = extracted.stack[depth]
        for edge in range(ready.user_start[source], ready.user_start[source + 1]):
            user = ready.users[edge]
            extracted.carrying[user, t] -= 1
            if extracted.carrying[user, t] > 0:
                continue
            if ready.types[user] == t:
                extracted.n_frontier[t] += 1
            else:
                extracted.stack[depth] = user
                depth += 1
