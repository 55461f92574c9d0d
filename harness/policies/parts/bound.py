"""What no schedule can beat: the lower bound of ED-Batch, and the exact minimum for tiny graphs."""

from __future__ import annotations

import heapq

import numpy as np

from harness.compiler.compiled import compiled
from harness.errors import ScheduleError
from harness.policies.parts.rounds import cut_in_rounds
from harness.values.arrays import Ints
from harness.values.graph import NO_TYPE, UNBATCHABLE, Graph

MAX_EXACT_VERTICES = 24


def lower_bound(graph: Graph) -> int:
    """Return LB(G) of Chen et al., "ED-Batch", ICML 2023, appendix A.3.

    Every unbatchable vertex is a batch; a path with k vertices of one type needs k batches of it.
    Rounds have a bound each, since no batch holds vertices of two.
    """
    if graph.rounds is not None:
        return sum(lower_bound(part) for part in cut_in_rounds(graph).graphs)
    return int(_lower_bound(graph.types, graph.arg_start, graph.args, graph.n_types))


@compiled
def _lower_bound(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> int:
    size = np.zeros(n_types, np.int32)
    for v in range(len(types)):
        size[types[v]] += 1
    bound = int(size[UNBATCHABLE])
    longest = np.empty(len(types), np.int32)  # vertices of type t on a path that ends here
    for t in range(UNBATCHABLE + 1, n_types):
        if size[t] == 0:
            continue
        deepest = 0
        for v in range(len(types)):
            path = 0
            for edge in range(arg_start[v], arg_start[v + 1]):
                path = max(path, longest[args[edge]])
            longest[v] = path + (1 if types[v] == t else 0)
            deepest = max(deepest, longest[v])
        bound += deepest
    return bound


def minimum_batches(graph: Graph) -> int:
    """Return the exact minimum number of batches; types that must follow do so.

    Best-first search over sets of executed vertices with the bound of what remains. Tried are all
    ready vertices of a type, and of a type that others follow those that no further type follows:
    executing more at the same cost never makes the rest longer.

    Raises ScheduleError for more than MAX_EXACT_VERTICES vertices.
    """
    if graph.rounds is not None:
        return sum(minimum_batches(part) for part in cut_in_rounds(graph).graphs)
    n = graph.n_vertices
    if n > MAX_EXACT_VERTICES:
        raise ScheduleError(
            f"the exact search was given {n} vertices; it takes at most {MAX_EXACT_VERTICES}"
        )
    everything = (1 << n) - 1
    cost = {0: 0}
    frontier = [(_remaining_bound(graph, 0), 0)]
    closed = set()
    while True:
        _, executed = heapq.heappop(frontier)
        if executed == everything:
            return cost[executed]
        if executed in closed:
            continue
        closed.add(executed)
        for batches, after in _successors(graph, executed):
            total = cost[executed] + batches
            if total < cost.get(after, n + 1):
                cost[after] = total
                heapq.heappush(frontier, (total + _remaining_bound(graph, after), after))


def _ready(graph: Graph, executed: int) -> dict[int, int]:
    """Return the ready vertices of each type as sets of bits."""
    ready: dict[int, int] = {}
    for v, t in enumerate(graph.types.tolist()):
        if not executed >> v & 1 and all(executed >> a & 1 for a in graph.args_of(v).tolist()):
            ready[t] = ready.get(t, 0) | 1 << v
    return ready


def _successors(graph: Graph, executed: int) -> list[tuple[int, int]]:
    """Return (batches, executed set) after each possible next choice of a type."""
    ready = _ready(graph, executed)
    if UNBATCHABLE in ready:
        return [(ready[UNBATCHABLE].bit_count(), executed | ready[UNBATCHABLE])]
    followers = _followers(graph)
    return [
        successor
        for vertices in ready.values()
        for successor in _batches_with_followers(graph, executed, vertices, followers)
    ]


def _followers(graph: Graph) -> dict[int, list[int]]:
    """Return the vertices that must follow each vertex that any must follow."""
    followers: dict[int, list[int]] = {}
    for v, t in enumerate(graph.types.tolist()):
        if graph.follows[t] != NO_TYPE:
            followers.setdefault(int(graph.args_of(v)[0]), []).append(v)
    return followers


def _batches_with_followers(
    graph: Graph, executed: int, ready: int, followers: dict[int, list[int]]
) -> list[tuple[int, int]]:
    """Return (batches, executed set) for each set of types that may follow a batch of these."""
    led = {
        v: frozenset(int(graph.types[f]) for f in followers.get(v, ()))
        for v in range(graph.n_vertices)
        if ready >> v & 1
    }
    allowed = set(led.values())
    for one in tuple(allowed):
        allowed |= {one | other for other in allowed}
    successors = []
    for types in allowed:
        after = executed
        for v in (v for v, own in led.items() if own <= types):
            after |= 1 << v
            for f in followers.get(v, ()):
                after |= 1 << f
        successors.append((1 + len(types), after))
    return successors


def _remaining_bound(graph: Graph, executed: int) -> int:
    """Return the lower bound of the vertices not executed yet."""
    remaining = [v for v in range(graph.n_vertices) if not executed >> v & 1]
    bound = sum(graph.types[v] == UNBATCHABLE for v in remaining)
    for t in range(UNBATCHABLE + 1, graph.n_types):
        longest = dict.fromkeys(range(graph.n_vertices), 0)
        for v in remaining:
            path = max((longest[a] for a in graph.args_of(v).tolist()), default=0)
            longest[v] = path + (graph.types[v] == t)
        bound += max(longest.values(), default=0)
    return int(bound)
