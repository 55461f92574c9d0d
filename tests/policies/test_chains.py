"""Chained types and levels: those of a plain count, in 8 bits or in 16."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from harness.compiler.compiled import compiled
from harness.compiler.lanes import MOST_SHORT, N_LANES
from harness.policies.parts.chains import Chains, chains_of
from harness.values.arrays import Ints
from harness.values.graph import UNBATCHABLE, Graph
from tests.support.random_graphs import graph_of, graphs


@compiled
def found(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> tuple[Ints, Ints, Chains]:
    return chains_of(types, arg_start, args, n_types)


def plain_levels(graph: Graph) -> np.ndarray:
    """The most vertices of each type (n, n_types) on a path to each vertex."""
    level = np.zeros((graph.n_vertices, graph.n_types), int)
    for v, t in enumerate(graph.types):
        args = graph.args_of(v)
        level[v] = level[args].max(axis=0) if len(args) else 0
        level[v, t] += 1
    return level


def check_levels(graph: Graph) -> bool:
    """Compare with plain counts; return whether 8 bits were too few."""
    n_users, n_of_type, (chained, short, long) = found(
        graph.types, graph.arg_start, graph.args, graph.n_types
    )
    plain = plain_levels(graph)
    met_twice = np.flatnonzero(plain.max(axis=0, initial=0) > 1)
    assert chained.tolist() == met_twice[met_twice != UNBATCHABLE].tolist()
    assert n_users.tolist() == np.bincount(graph.args, minlength=graph.n_vertices).tolist()
    assert n_of_type.tolist() == np.bincount(graph.types, minlength=graph.n_types).tolist()
    assert short.shape[1] % N_LANES == 0
    expected = np.zeros(short.shape, int)
    expected[:, : graph.n_types] = plain
    expected[:, UNBATCHABLE] = 0
    np.testing.assert_array_equal(short, np.minimum(expected, MOST_SHORT))
    if len(long):
        np.testing.assert_array_equal(long, expected)
    assert (expected > MOST_SHORT).any() <= bool(len(long))
    return bool(len(long))


@settings(deadline=None, max_examples=200)  # the first call compiles
@given(graphs())
def test_chained_types_and_levels_are_those_of_a_plain_count(graph: Graph) -> None:
    assert not check_levels(graph)


@pytest.mark.parametrize("length", [MOST_SHORT - 1, MOST_SHORT, MOST_SHORT + 1, 400])
def test_longer_chains_than_8_bits_can_count_are_counted(length: int) -> None:
    types = [1] * length + [2, 1, 2]
    graph = graph_of(types, [[v - 1] if v else [] for v in range(len(types))])
    assert check_levels(graph) == (length >= MOST_SHORT - 1)


@pytest.mark.parametrize("n_types", [1, 13, 14, 15, 29, 30, 31, 46, 130])
def test_any_number_of_types(n_types: int) -> None:
    rng = np.random.default_rng(n_types)
    n = 12 * n_types
    args = [sorted(set(rng.integers(max(0, v - 9), v, 2).tolist())) if v else [] for v in range(n)]
    types = (rng.permutation(n) % n_types + 1).tolist()
    once = graph_of([0, *types, n_types + 1], [[], *args, [n - 1]])
    assert not check_levels(once)
