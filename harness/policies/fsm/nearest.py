"""|F(G^t)| by nearest vertices of the same type: cheap where one graph is scheduled many times.

N(u) holds the descendants of u of its own type that are reached through other types only. A
remaining vertex is in F(G^t) when no remaining vertex has it in its N. Finding N takes a search
from every vertex, once; afterwards a whole schedule costs the sum of all |N(u)|.

Source: ED-Batch's release (Chen et al., ICML 2023), dynet/ooc-scheduler.cc (typewise_init).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.policies.parts.ready import users_of
from harness.values.arrays import FlagTable, Ints


class Nearest(NamedTuple):
    """below[start[u]:start[u + 1]] is N(u); n_above (n,): in how many N a vertex is.

    n_frontier (n_types,): |F(G^t)| of the whole graph.
    """

    start: Ints
    below: Ints
    n_above: Ints
    n_frontier: Ints


@compiled
def nearest(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> Nearest:
    """Return N of every vertex, and the counts before the first batch."""
    n = len(types)
    user_start, users = users_of(n, arg_start, args)
    leads_to = _leads_to(types, user_start, users, n_types)
    start = np.zeros(n + 1, np.int32)
    below = np.empty(max(16, 2 * n), np.int32)
    n_above = np.zeros(n, np.int32)
    seen_from = np.full(n, -1, np.int32)
    stack = np.empty(n, np.int32)
    n_below = 0
    for u in range(n):
        stack[0] = u
        depth = 1
        while depth > 0:
            depth -= 1
            source = stack[depth]
            for user in users[user_start[source] : user_start[source + 1]]:
                if seen_from[user] == u:
                    continue
                seen_from[user] = u
                if types[user] == types[u]:
                    if n_below == len(below):
                        below = np.concatenate((below, np.empty(n_below, np.int32)))
                    below[n_below] = user
                    n_below += 1
                    n_above[user] += 1
                elif leads_to[user, types[u]]:
                    stack[depth] = user
                    depth += 1
        start[u + 1] = n_below
    n_frontier = np.zeros(n_types, np.int32)
    for v in range(n):
        if n_above[v] == 0:
            n_frontier[types[v]] += 1
    return Nearest(start, below[:n_below], n_above, n_frontier)


@helper
def _leads_to(types: Ints, user_start: Ints, users: Ints, n_types: int) -> FlagTable:
    """Return which types each vertex has among its descendants (n, n_types)."""
    n = len(types)
    leads_to = np.zeros((n, n_types), np.bool_)
    for v in range(n - 1, -1, -1):
        for user in users[user_start[v] : user_start[v + 1]]:
            leads_to[v, types[user]] = True
            for t in range(n_types):
                leads_to[v, t] |= leads_to[user, t]
    return leads_to


@helper
def fresh(near: Nearest) -> Nearest:
    """Return a copy whose counts may be changed."""
    return Nearest(near.start, near.below, near.n_above.copy(), near.n_frontier.copy())


@helper
def take(near: Nearest, v: int, t: int) -> None:
    """Take a vertex of type t without remaining arguments out of the graph."""
    near.n_frontier[t] -= 1
    for index in range(near.start[v], near.start[v + 1]):
        near.n_above[near.below[index]] -= 1
        if near.n_above[near.below[index]] == 0:
            near.n_frontier[t] += 1
