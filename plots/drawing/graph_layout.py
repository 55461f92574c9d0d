"""Where to draw the vertices of a graph: in layers, arguments below their users.

Trees come out tidy: layers count from the roots, leaves are side by side in reading order, and
every parent is over the middle of its children, so that no edges cross. In other graphs layers
count from the sources; they get the same start, then a few sweeps of averaging over neighbours
(Sugiyama's barycentres), each followed by pushing apart what is too close. Outputs and losses are
no part of that: they stand beside the vertex they belong to, away from its user.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.values.graph import Graph
from harness.values.instances import int_array

Floats = NDArray[np.float64]
N_SWEEPS = 24
STEP, RISE = 0.85, 0.5  # from one vertex at the side to the next, and how far all of them rise


@dataclass(frozen=True, slots=True)
class _Sides:
    """Room that vertices at the side take, by vertex of the core."""

    left: Floats
    right: Floats


def place(graph: Graph) -> tuple[Floats, Floats]:
    """Return x and y of each vertex; neighbours in a layer are at least 1 apart, layers are 1."""
    core_of = _core_of(graph)
    is_core = core_of == np.arange(graph.n_vertices)
    core = _part(graph, is_core)
    place_of = np.cumsum(is_core) - 1  # in the core
    at_side = [np.flatnonzero((core_of == v) & ~is_core) for v in np.flatnonzero(is_core)]
    is_forest = bool(np.all(np.bincount(core.args, minlength=core.n_vertices) <= 1))
    alone, _ = _place_core(core, is_forest, _Sides(*np.zeros((2, core.n_vertices))))
    # Away from the users, so that no edge passes through what stands at the side.
    turned = _barycentres(core, alone, up=False) > alone + 1e-9
    room = STEP * np.array([len(vertices) for vertices in at_side], dtype=np.float64)
    sides = _Sides(left=np.where(turned, room, 0.0), right=np.where(turned, 0.0, room))
    x_core, layer = _place_core(core, is_forest, sides)
    x, y = x_core[place_of], layer[place_of].astype(np.float64)
    for v, vertices in enumerate(at_side):
        steps = np.arange(1, len(vertices) + 1)
        x[vertices] = x_core[v] + (-STEP if turned[v] else STEP) * steps
        y[vertices] = layer[v] + RISE * steps / max(1, len(vertices))
    return x - x.min(), y


def _core_of(graph: Graph) -> NDArray[np.int64]:
    """For each vertex, itself, or the vertex at whose side it stands.

    At the side are types of one argument that nothing uses, and those that only these use.
    """
    n_args = np.diff(graph.arg_start)
    users = np.repeat(graph.types, n_args)
    at_side: set[int] = set()
    kinds = np.unique(graph.types).tolist()
    while True:
        found = {
            t
            for t in kinds
            if np.all(n_args[graph.types == t] == 1)
            and set(users[graph.types[graph.args] == t].tolist()) <= at_side
        }
        if found == at_side:
            break
        at_side = found
    core_of = np.arange(graph.n_vertices)
    for v in range(graph.n_vertices):
        if graph.types[v] in at_side:
            core_of[v] = core_of[graph.args_of(v)[0]]
    return core_of


def _part(graph: Graph, kept: NDArray[np.bool_]) -> Graph:
    """The graph of some vertices, which use no others."""
    number = np.cumsum(kept) - 1
    n_args = np.where(kept, np.diff(graph.arg_start), 0)
    args = number[graph.args[np.repeat(kept, np.diff(graph.arg_start))]]
    start = np.concatenate([[0], np.cumsum(n_args[kept])])
    return Graph(graph.types[kept], start, args, graph.type_names)


def _place_core(graph: Graph, is_forest: bool, sides: _Sides) -> tuple[Floats, NDArray[np.int64]]:
    if is_forest:
        layer = _layers_from_roots(graph)
        return _spread_out(_tidy(graph, _reading_order(graph), sides), layer, sides), layer
    layer = _layers_from_sources(graph)
    cut, layer_of_cut, number = _with_short_edges(graph, layer)
    room = np.zeros((2, cut.n_vertices))
    room[:, number] = sides.left, sides.right
    x = _tidy(cut, _reading_order(cut), _Sides(*room))
    for sweep in range(N_SWEEPS):
        x = _spread_out(_barycentres(cut, x, up=sweep % 2 == 0), layer_of_cut, _Sides(*room))
    return x[number], layer


def _with_short_edges(
    graph: Graph, layer: NDArray[np.int64]
) -> tuple[Graph, NDArray[np.int64], NDArray[np.int64]]:
    """Cut edges over several layers by a vertex in each, which keeps their way free.

    Returns that graph, its layers, and where in it the vertices of `graph` are.
    """
    number = np.zeros(graph.n_vertices, dtype=np.int64)
    args: list[list[int]] = []
    layers: list[int] = []
    for v in range(graph.n_vertices):
        ends = []
        for arg in graph.args_of(v).tolist():
            end = int(number[arg])
            for level in range(layer[arg] + 1, layer[v]):
                args.append([end])
                layers.append(level)
                end = len(args) - 1
            ends.append(end)
        number[v] = len(args)
        args.append(ends)
        layers.append(int(layer[v]))
    starts = int_array(np.cumsum([0, *map(len, args)]))
    flat = int_array([end for ends in args for end in ends])
    cut = Graph(int_array([1] * len(args)), starts, flat, ("none", "any"))
    return cut, np.array(layers), number


def _spread_out(wanted: Floats, layer: NDArray[np.int64], sides: _Sides) -> Floats:
    x = np.empty_like(wanted)
    for level in range(layer.max() + 1):
        members = np.flatnonzero(layer == level)
        x[members] = _apart(wanted[members], sides.left[members], sides.right[members])
    return x


def _layers_from_roots(graph: Graph) -> NDArray[np.int64]:
    """Height of the picture minus the path to the root."""
    depth = np.zeros(graph.n_vertices, dtype=np.int64)
    for v in range(graph.n_vertices - 1, -1, -1):
        depth[graph.args_of(v)] = depth[v] + 1
    layer: NDArray[np.int64] = depth.max() - depth
    return layer


def _layers_from_sources(graph: Graph) -> NDArray[np.int64]:
    """Longest path from the sources."""
    layer = np.zeros(graph.n_vertices, dtype=np.int64)
    for v in range(graph.n_vertices):
        args = graph.args_of(v)
        layer[v] = 1 + layer[args].max() if len(args) else 0
    return layer


def _reading_order(graph: Graph) -> list[int]:
    """Depth-first from the vertices that nothing uses, arguments by slot before their user."""
    used = np.zeros(graph.n_vertices, dtype=bool)
    used[graph.args] = True
    order: list[int] = []
    seen: set[int] = set()
    for sink in np.flatnonzero(~used).tolist():
        stack = [(sink, False)]
        while stack:
            v, expanded = stack.pop()
            if expanded:
                order.append(v)
            elif v not in seen:
                seen.add(v)
                stack.append((v, True))
                stack += [(a, False) for a in reversed(graph.args_of(v).tolist())]
    return order


def _tidy(graph: Graph, order: list[int], sides: _Sides) -> Floats:
    """Sources side by side in reading order, all others over the middle of their arguments."""
    x = np.zeros(graph.n_vertices)
    free = 0.0
    for v in order:
        args = graph.args_of(v)
        if len(args):
            x[v] = x[args].mean()
        else:
            x[v] = free + sides.left[v]
            free = x[v] + sides.right[v] + 1
    return x


def _barycentres(graph: Graph, x: Floats, up: bool) -> Floats:
    """Mean position of each vertex's arguments (up) or users (down); its own where it has none."""
    users = np.repeat(np.arange(graph.n_vertices), np.diff(graph.arg_start))
    at, other = (users, graph.args) if up else (graph.args, users)
    count = np.bincount(at, minlength=graph.n_vertices)
    total = np.bincount(at, weights=x[other], minlength=graph.n_vertices)
    return np.where(count > 0, total / np.maximum(count, 1), x)


def _apart(wanted: Floats, left: Floats, right: Floats) -> Floats:
    """Closest positions (least squares) in the same order with gaps of at least 1 and the sides.

    Subtracting the gaps so far turns them into monotony; pools of violators take their mean.
    """
    order = np.argsort(wanted, kind="stable")
    gaps = 1.0 + right[order][:-1] + left[order][1:]
    needed = np.concatenate([[0.0], np.cumsum(gaps)])
    pools: list[tuple[float, int]] = []
    for value in (wanted[order] - needed).tolist():
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            before, n_before = pools.pop()
            mean = (mean * size + before * n_before) / (size + n_before)
            size += n_before
        pools.append((mean, size))
    placed = np.empty(len(wanted))
    flat = np.concatenate([np.full(size, mean) for mean, size in pools])
    placed[order] = flat + needed
    return placed
