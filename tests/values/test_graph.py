"""Validation of graphs, which must be typed, topologically ordered DAGs, and of their schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.graph import NO_TYPE, Graph
from dynbatch.harness.values.schedule import Schedule, check_schedule
from tests.support.policies import batches as batches_of
from tests.support.random_graphs import graph_of


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
    ("given", "message"),
    [
        ({"follows": [-1, -1]}, "follows has 2 entries"),
        ({"follows": [-1, -1, 0]}, "expected batchable types"),
        ({"follows": [-1, -1, 3]}, "expected batchable types"),
        ({"follows": [-1, 2, 1]}, "that follow no other type"),
        ({"follows": [1, -1, -1]}, "the unbatchable type cannot follow"),
        ({"follows": [-1, 2, -1]}, "needs one argument, of the type that it follows"),
        ({"cheap": [True]}, "cheap has 1 entries"),
    ],
)
def test_inconsistent_facts_about_types_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        graph_of([1, 2], [[], [0]], n_types=3, **given)


def test_a_follower_with_two_arguments_is_refused() -> None:
    with pytest.raises(ScheduleError, match="needs one argument"):
        graph_of([1, 1, 2], [[], [], [0, 1]], follows=[-1, -1, 1])


def test_a_follower_with_a_depth_is_refused() -> None:
    """It would need a larger depth than its argument, and runs at the same one."""
    arrays = [np.array(values, np.int32) for values in ([1, 2], [0, 0, 1], [0], [-1, -1, 1])]
    types, arg_start, args, follows = arrays
    counted = {"phases": np.zeros(2, np.int32), "depths": np.arange(2, dtype=np.int32)}
    with pytest.raises(ScheduleError, match="phases and depths has no vertex that follows"):
        Graph(types, arg_start, args, ("a", "b", "c"), follows, **counted)


def test_defaults_follow_nothing_and_are_not_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a graph that is taken as it is, without checks, and can be read only."""
    plain = graph_of([1, 2], [[], [0]])
    given = (plain.types.copy(), plain.arg_start.copy(), plain.args.copy())
    monkeypatch.setattr(Graph, "_check", None)  # the caller guarantees that they are valid
    for graph in (plain, Graph.from_valid_arrays(*given, plain.type_names)):
        assert graph.follows.tolist() == [NO_TYPE] * 3
        assert graph.cheap.tolist() == [False] * 3
    assert not any(array.flags.writeable for array in given)


# --- schedules ---

GRAPH = graph_of([1, 1, 2, 0, 0], [[], [], [0, 1], [], []])


def schedule_of(*batches: list[int]) -> Schedule:
    order = np.array([v for batch in batches for v in batch], dtype=np.int32)
    return Schedule(order, np.cumsum([0, *map(len, batches)]))


@pytest.mark.parametrize(
    "batches", [([0, 1], [2], [3], [4]), ([4], [1], [3], [0], [2]), ([1, 0], [3], [4], [2])]
)
def test_valid_schedules_pass(batches: tuple[list[int], ...]) -> None:
    check_schedule(GRAPH, schedule_of(*batches))


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (([0, 1], [2], [3]), "each of 5 vertices exactly once"),
        (([0, 1], [2], [3], [4], [0]), "each of 5 vertices exactly once"),
        (([0, 0], [2], [3], [4]), "each of 5 vertices exactly once"),
        (([0, 1], [2], [3], [5]), "each of 5 vertices exactly once"),
        (([0], [2], [1], [3], [4]), r"vertex 2 runs in batch 1, not after its argument 1"),
        (([0], [1, 2], [3], [4]), r"vertex 2 runs in batch 1, not after its argument 1"),
        (([0, 3], [1], [2], [4]), "more than one type"),
        (([0, 1], [2], [3, 4]), "unbatchable vertex shares a batch"),
    ],
)
def test_invalid_schedules_are_refused(batches: tuple[list[int], ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        check_schedule(GRAPH, schedule_of(*batches))


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        *((wrong, "batch starts must run from 0 to 2") for wrong in ([0, 1], [1, 2], [0, 3], [])),
        *((wrong, "empty batch") for wrong in ([0, 0, 2], [0, 1, 1, 2], [0, 2, 1, 2])),
    ],
)
def test_starts_of_batches_that_cannot_be_are_refused(starts: list[int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule(np.array([0, 1]), np.array(starts, dtype=np.int32))


def test_a_schedule_that_is_taken_as_it_is_can_be_read_only() -> None:
    order, starts = np.array([1, 0, 3, 4, 2], np.int32), np.array([0, 2, 3, 4, 5], np.int32)
    schedule = Schedule.from_valid_arrays(order, starts)
    check_schedule(GRAPH, schedule)
    assert (schedule.n_batches, batches_of(schedule)[0]) == (4, [1, 0])
    assert not schedule.order.flags.writeable
    assert not schedule.starts.flags.writeable


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([0, 2, 2, 3, 4, 5], "empty batch"),
        ([0, 2, 3, 4, 5, 5], "empty batch"),
        ([0, 2, 3, 4], "must run from 0 to 5"),
        ([1, 2, 3, 4, 5], "must run from 0 to 5"),
    ],
)
def test_unchecked_schedule_is_validated_by_check_schedule(starts: list[int], message: str) -> None:
    schedule = Schedule.from_valid_arrays(
        np.array([1, 0, 3, 4, 2], np.int32), np.array(starts, np.int32)
    )
    with pytest.raises(ScheduleError, match=message):
        check_schedule(GRAPH, schedule)
