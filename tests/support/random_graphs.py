"""Random trees and typed graphs for hypothesis, and the exact minimum of batches of tiny ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from hypothesis import strategies as st

from dynbatch.harness.policies.parts.segments import cut_in_segments
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph
from dynbatch.harness.values.instances import Tree
from tests.support.sketch_models import SIZES


def graph_of(
    types: Sequence[int],
    args: Sequence[Sequence[int]],
    n_types: int = 0,
    follows: Sequence[int] = (),
    cheap: Sequence[bool] = (),
) -> Graph:
    """Build a graph from one list of arguments per vertex."""
    n_types = max([n_types, len(follows), *(t + 1 for t in types)])
    return Graph(
        types=np.array(types, dtype=np.int32),
        arg_start=np.cumsum([0, *map(len, args)]),
        args=np.array([a for one in args for a in one], dtype=np.int32),
        type_names=tuple(f"type {t}" for t in range(n_types)),
        follows=np.array(follows, dtype=np.int32),
        cheap=np.array(cheap, dtype=np.bool_),
    )


@st.composite
def graphs(draw: st.DrawFn, max_vertices: int = 40, max_types: int = 5) -> Graph:
    """Draw a graph in which some types have one or two types that follow them."""
    n_types = draw(st.integers(2, max_types))
    follows = [NO_TYPE] * n_types
    for _ in range(draw(st.integers(0, 2))):
        follows.append(draw(st.integers(1, n_types - 1)))
    types: list[int] = []
    args: list[list[int]] = []
    for _ in range(draw(st.integers(1, max_vertices))):
        followers = [
            (t, v) for t, led in enumerate(follows) for v, own in enumerate(types) if own == led
        ]
        if followers and draw(st.booleans()):
            t, v = draw(st.sampled_from(followers))
            types.append(t)
            args.append([v])
        else:
            types.append(draw(st.integers(UNBATCHABLE, n_types - 1)))
            earlier = st.integers(0, len(args) - 1) if args else st.nothing()
            args.append(draw(st.lists(earlier, max_size=3 if args else 0)))
    return _renamed(draw, types, args, follows)


@st.composite
def graphs_in_segments(draw: st.DrawFn) -> Graph:
    """Draw a graph whose vertices appear in segments, some of which may be empty."""
    graph = draw(graphs())
    segments: list[int] = []
    for v, t in enumerate(graph.types.tolist()):
        earliest = max((segments[a] for a in graph.select_args(v).tolist()), default=0)
        waits = 0 if graph.follows[t] != NO_TYPE else draw(st.sampled_from((0, 0, 1, 2)))
        segments.append(earliest + waits)
    return replace(graph, segments=as_int_array(segments))


def _renamed(draw: st.DrawFn, types: list[int], args: list[list[int]], follows: list[int]) -> Graph:
    """Permute the ids of all types except the unbatchable one; policies must not rely on them."""
    new = [UNBATCHABLE, *draw(st.permutations(range(1, len(follows))))]
    new_follows = [NO_TYPE] * len(follows)
    for t, led in enumerate(follows):
        new_follows[new[t]] = NO_TYPE if led == NO_TYPE else new[led]
    cheap = draw(st.lists(st.booleans(), min_size=len(follows), max_size=len(follows)))
    return graph_of([new[t] for t in types], args, len(follows), new_follows, cheap)


@st.composite
def trees(draw: st.DrawFn, max_leaves: int = 6) -> Tree:
    """Draw a binary tree by joining neighbors, in post-order of the joins."""
    n = draw(st.integers(1, max_leaves))
    words = draw(st.lists(st.integers(0, SIZES.get_size("words") - 1), min_size=n, max_size=n))
    left, right, roots = [-1] * n, [-1] * n, list(range(n))
    while len(roots) > 1:
        k = draw(st.integers(0, len(roots) - 2))
        words.append(-1)
        left.append(roots[k])
        right.append(roots[k + 1])
        roots[k : k + 2] = [len(words) - 1]
    n = len(words)
    labels = draw(st.lists(st.integers(0, SIZES.get_size("classes") - 1), min_size=n, max_size=n))
    return Tree(*map(as_int_array, (words, labels, left, right)))


# --- exact minimum ---


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
