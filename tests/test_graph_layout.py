"""Where pictures place vertices: arguments below users, none on top of another."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from random_graphs import graph_of, graphs

from harness.graph import Graph
from plots.graph_layout import place


@settings(deadline=None, max_examples=60)
@given(graphs(max_vertices=30))
def test_vertices_are_apart_and_arguments_below_their_users(graph: Graph) -> None:
    x, y = place(graph)
    for v in range(graph.n_vertices):
        assert all(y[a] < y[v] for a in graph.args_of(v))
    for layer in np.unique(y):
        assert np.all(np.diff(np.sort(x[y == layer])) >= 1 - 1e-9)


def test_a_tree_is_tidy() -> None:
    # ((a b) c): the parent over the middle of its children, c level with the inner parent.
    x, y = place(graph_of([1, 1, 2, 1, 2], [[], [], [0, 1], [], [2, 3]]))
    assert y.tolist() == [0, 0, 1, 1, 2]
    assert x.tolist() == [0, 1, 0.5, 2, 1.25]
