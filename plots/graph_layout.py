"""Where to draw the vertices of a graph: in layers, arguments below their users.

Trees come out tidy: layers count from the roots, leaves are side by side in reading order, and
every parent is over the middle of its children, so that no edges cross. In other graphs layers
count from the sources; they get the same start, then a few sweeps of averaging over neighbours
(Sugiyama's barycentres), each followed by pushing apart what is too close.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.graph import Graph

Floats = NDArray[np.float64]
N_SWEEPS = 24


def place(graph: Graph) -> tuple[Floats, Floats]:
    """Return x and y of each vertex; neighbours in a layer are at least 1 apart, layers are 1."""
    is_forest = bool(np.all(np.bincount(graph.args, minlength=graph.n_vertices) <= 1))
    layer = _layers_from_roots(graph) if is_forest else _layers_from_sources(graph)
    x = _tidy(graph, _reading_order(graph))
    for sweep in range(0 if is_forest else N_SWEEPS):
        x = _spread_out(_barycentres(graph, x, up=sweep % 2 == 0), layer)
    x = _spread_out(x, layer)
    return x - x.min(), layer.astype(np.float64)


def _spread_out(wanted: Floats, layer: NDArray[np.int64]) -> Floats:
    x = np.empty_like(wanted)
    for level in range(layer.max() + 1):
        members = np.flatnonzero(layer == level)
        x[members] = _apart(wanted[members])
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


def _tidy(graph: Graph, order: list[int]) -> Floats:
    """Sources side by side in reading order, all others over the middle of their arguments."""
    x = np.zeros(graph.n_vertices)
    n_sources = 0
    for v in order:
        args = graph.args_of(v)
        if len(args):
            x[v] = x[args].mean()
        else:
            x[v] = n_sources
            n_sources += 1
    return x


def _barycentres(graph: Graph, x: Floats, up: bool) -> Floats:
    """Mean position of each vertex's arguments (up) or users (down); its own where it has none."""
    users = np.repeat(np.arange(graph.n_vertices), np.diff(graph.arg_start))
    at, other = (users, graph.args) if up else (graph.args, users)
    count = np.bincount(at, minlength=graph.n_vertices)
    total = np.bincount(at, weights=x[other], minlength=graph.n_vertices)
    return np.where(count > 0, total / np.maximum(count, 1), x)


def _apart(wanted: Floats) -> Floats:
    """Closest positions (least squares) in the same order with gaps of at least 1.

    Subtracting the rank turns gaps into monotony; pools of violators take their mean.
    """
    order = np.argsort(wanted, kind="stable")
    pools: list[tuple[float, int]] = []
    for rank, value in enumerate(wanted[order].tolist()):
        mean, size = value - rank, 1
        while pools and pools[-1][0] > mean:
            before, n_before = pools.pop()
            mean = (mean * size + before * n_before) / (size + n_before)
            size += n_before
        pools.append((mean, size))
    placed = np.empty(len(wanted))
    flat = np.concatenate([np.full(size, mean) for mean, size in pools])
    placed[order] = flat + np.arange(len(wanted))
    return placed
