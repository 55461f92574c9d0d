"""Random typed graphs for hypothesis, with unbatchable vertices and types that follow blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph


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
    """Draw ordinary types (0 unbatchable), some with one or two types that follow them.

    Ids of followers are smaller or larger than those of their blocks; repeated arguments occur.
    """
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
