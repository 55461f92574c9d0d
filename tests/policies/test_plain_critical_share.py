"""Critical share makes the very batches of its plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contracts.policy import load_policy
from harness.values.graph import Graph
from harness.values.schedule import Schedule
from tests.support.plain_critical_share import plain_batches
from tests.support.random_graphs import graph_of, graphs


def batches_of(schedule: Schedule) -> list[list[int]]:
    return [schedule.batch(index).tolist() for index in range(schedule.n_batches)]


@settings(deadline=None, max_examples=300)  # the first call compiles
@given(graph=graphs(max_vertices=40, max_types=7))
def test_random_graphs_are_scheduled_as_defined(graph: Graph) -> None:
    assert batches_of(load_policy("critical_share")(graph)) == plain_batches(graph)


@st.composite
def instances_of_cells(draw: st.DrawFn) -> Graph:
    """Trees, chains and lattices of one cell of a few operators, side by side, as models have.

    Every operator reads others of its cell, and some those of the cells before.
    """
    n_operators = draw(st.integers(1, 8))
    kinds = draw(st.permutations(range(1, n_operators + 1)))
    inside = [
        sorted(draw(st.sets(st.integers(0, k - 1), max_size=2))) if k else []
        for k in range(n_operators)
    ]
    from_before = [draw(st.sampled_from((-1, n_operators - 1, k))) for k in range(n_operators)]
    types: list[int] = []
    args: list[list[int]] = []
    for _ in range(draw(st.integers(1, 4))):
        cells: list[int] = []
        for _ in range(draw(st.integers(1, 6))):
            before = draw(st.sets(st.sampled_from(cells), max_size=2)) if cells else set()
            first = len(types)
            for k in range(n_operators):
                reads = [first + i for i in inside[k]]
                if from_before[k] >= 0:
                    reads += [cell + from_before[k] for cell in sorted(before)]
                types.append(kinds[k])
                args.append(reads)
            cells.append(first)
    return graph_of(types, args)


@settings(deadline=None, max_examples=200)
@given(graph=instances_of_cells())
def test_cells_of_operators_are_scheduled_as_defined(graph: Graph) -> None:
    assert batches_of(load_policy("critical_share")(graph)) == plain_batches(graph)


@pytest.mark.parametrize("n_types", [16, 17, 33, 70])
def test_many_types_are_scheduled_as_defined(n_types: int) -> None:
    rng = np.random.default_rng(n_types)
    for _ in range(5):
        n = 4 * n_types
        args = [sorted(set(rng.integers(0, v, 2).tolist())) if v > 5 else [] for v in range(n)]
        graph = graph_of(rng.integers(1, n_types + 1, n).tolist(), args)
        assert batches_of(load_policy("critical_share")(graph)) == plain_batches(graph)
