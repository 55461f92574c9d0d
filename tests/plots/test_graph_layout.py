"""Where pictures place vertices: arguments below users, none on top of another."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from harness.values.graph import Graph
from plots.drawing.graph_layout import place
from tests.support.random_graphs import graph_of, graphs


@settings(deadline=None, max_examples=60)
@given(graphs(max_vertices=30))
def test_vertices_are_apart_and_arguments_below_their_users(graph: Graph) -> None:
    x, y = place(graph)
    for v in range(graph.n_vertices):
        assert all(y[a] < y[v] for a in graph.args_of(v))
    for layer in np.unique(y):
        assert np.all(np.diff(np.sort(x[y == layer])) >= 1 - 1e-9)


TREE = [1, 1, 2, 1, 2], [[], [], [0, 1], [], [2, 3]]


def test_outputs_stand_beside_their_vertex_away_from_its_user() -> None:
    # The tree of the next test; an output (type 3) at every vertex, and its loss (type 4).
    types, args = TREE
    outputs = graph_of([*types, *[3] * 5, *[4] * 5], [*args, *([v] for v in range(10))])
    x, y = place(outputs)
    for v in range(5):
        side = -1 if v in (0, 2) else 1  # first children have their user on the right
        output, loss = v + 5, v + 10
        assert 0 < side * (x[output] - x[v]) < side * (x[loss] - x[v])
        assert y[v] < y[output] < y[loss] < y[v] + 1
    assert x[2] == (x[0] + x[1]) / 2


def test_a_tree_is_tidy() -> None:
    # ((a b) c): the parent over the middle of its children, c level with the inner parent.
    x, y = place(graph_of(*TREE))
    assert y.tolist() == [0, 0, 1, 1, 2]
    assert x.tolist() == [0, 1, 0.5, 2, 1.25]
