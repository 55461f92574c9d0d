"""Exact minimum number of batches of a tiny graph, by search over sets of executed vertices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count

from dynbatch.harness.policies.parts.segments import cut_in_segments
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph


def minimum_batches(graph: Graph) -> int:
    """Return the minimum number of batches; types that must follow another one do so.

    A batch has all ready vertices of a type. If types follow it, the search also tries the vertices
    that only some of these types follow: executing more at the same cost never lengthens the rest.
    """
    if graph.segments is not None:
        return sum(map(minimum_batches, cut_in_segments(graph).graphs))
    everything = (1 << graph.n_vertices) - 1
    reached: defaultdict[int, set[int]] = defaultdict(set)  # executed sets by batches so far
    reached[0].add(0)
    for n_batches in count():
        if everything in reached[n_batches]:
            return n_batches
        for executed in reached.pop(n_batches):
            for n_more, more in _batches(graph, executed):
                reached[n_batches + n_more].add(executed | more)
    raise AssertionError


def _batches(graph: Graph, executed: int) -> Iterator[tuple[int, int]]:
    """Yield (batches, vertices as bits) for each possible next choice of a type."""
    types = graph.types.tolist()
    args = [graph.select_args(v).tolist() for v in range(graph.n_vertices)]
    ready = [
        v
        for v in range(graph.n_vertices)
        if not executed >> v & 1 and all(executed >> a & 1 for a in args[v])
    ]
    unbatchable = [v for v in ready if types[v] == UNBATCHABLE]
    if unbatchable:
        yield len(unbatchable), sum(1 << v for v in unbatchable)
        return
    led = {v: [f for f in range(v + 1, graph.n_vertices) if _follows(graph, f, v)] for v in ready}
    for t in {types[v] for v in ready}:
        following = {v: frozenset(types[f] for f in led[v]) for v in ready if types[v] == t}
        allowed = set(following.values())
        for some in tuple(allowed):
            allowed |= {some | others for others in allowed}
        for followers in allowed:
            chosen = [v for v, needed in following.items() if needed <= followers]
            executed_now = {*chosen, *(f for v in chosen for f in led[v])}
            yield 1 + len(followers), sum(1 << v for v in executed_now)


def _follows(graph: Graph, follower: int, leader: int) -> bool:
    is_led = graph.follows[graph.types[follower]] != NO_TYPE
    return bool(is_led and graph.select_args(follower)[0] == leader)
