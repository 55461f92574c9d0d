"""Validation of graphs, which must be typed, topologically ordered DAGs."""

from __future__ import annotations

import numpy as np
import pytest

from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.graph import NO_TYPE, Graph
from tests.support.random_graphs import graph_of


def test_arguments_are_found_by_slot() -> None:
    graph = graph_of([1, 1, 2], [[], [], [1, 0]])
    assert graph.select_args(2).tolist() == [1, 0]
    assert graph.select_args(0).tolist() == []
    assert graph.n_vertices == 3
    assert graph.n_types == 3


def test_defaults_follow_nothing_and_are_not_cheap() -> None:
    graph = graph_of([1, 2], [[], [0]])
    assert graph.follows.tolist() == [NO_TYPE] * 3
    assert graph.cheap.tolist() == [False] * 3


def test_an_empty_graph_is_a_graph() -> None:
    assert graph_of([], [], n_types=1).n_vertices == 0


def test_arrays_cannot_be_changed() -> None:
    graph = graph_of([1], [[]])
    for array in (graph.types, graph.args, graph.arg_start, graph.follows, graph.cheap):
        assert not array.flags.writeable


@pytest.mark.parametrize("arg", [-1, 1, 2])
def test_an_argument_that_does_not_come_before_is_refused(arg: int) -> None:
    with pytest.raises(ScheduleError, match=f"vertex 1 uses vertex {arg}.*cycle"):
        graph_of([1, 1, 1], [[], [arg], [0]])


@pytest.mark.parametrize(
    ("types", "arg_start", "args", "message"),
    [
        ([1, 1], [0, 0], [], "arg_start has 2 entries"),
        ([1, 1], [0, 0, 2], [0], "arg_start has 3 entries"),
        ([1, 1], [1, 1, 1], [0], "arg_start has 3 entries"),
        ([1, 1, 1], [0, 1, 0, 0], [], "arg_start must not decrease"),
        ([1, -1], [0, 0, 0], [], "types must not be negative"),
        ([1, 5], [0, 0, 0], [], "type 5 has no name; 3 types are named"),
    ],
)
def test_inconsistent_arrays_are_refused(
    types: list[int], arg_start: list[int], args: list[int], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        Graph(np.array(types), np.array(arg_start), np.array(args, dtype=int), ("a", "b", "c"))


@pytest.mark.parametrize(
    ("follows", "message"),
    [
        ([-1, -1], "follows has 2 entries"),
        ([-1, -1, 0], "expected batchable types"),
        ([-1, -1, 3], "expected batchable types"),
        ([-1, 2, 1], "that follow no other type"),
        ([1, -1, -1], "the unbatchable type cannot follow"),
        ([-1, 2, -1], "needs one argument, of the type that it follows"),
    ],
)
def test_inconsistent_followers_are_refused(follows: list[int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Graph(
            np.array([1, 2]), np.array([0, 0, 1]), np.array([0]), ("0", "1", "2"), np.array(follows)
        )


def test_a_follower_with_two_arguments_is_refused() -> None:
    with pytest.raises(ScheduleError, match="needs one argument"):
        graph_of([1, 1, 2], [[], [], [0, 1]], follows=[-1, -1, 1])


def test_cheap_needs_one_entry_a_type() -> None:
    with pytest.raises(ScheduleError, match="cheap has 1 entries"):
        graph_of([1, 2], [[], [0]], cheap=[True])


def test_a_graph_that_is_taken_as_it_is_has_the_defaults_and_can_be_read_only() -> None:
    plain = graph_of([1, 2], [[], [0]])
    given = (plain.types.copy(), plain.arg_start.copy(), plain.args.copy())
    graph = Graph.from_valid_arrays(*given, plain.type_names)
    assert graph.follows.tolist() == [NO_TYPE] * 3
    assert graph.cheap.tolist() == [False] * 3
    assert not any(array.flags.writeable for array in given)
