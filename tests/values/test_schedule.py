"""check_schedule, which accepts valid schedules and explains why others are invalid."""

from __future__ import annotations

import numpy as np
import pytest

from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.schedule import Schedule, check_schedule
from tests.support.policies import batches as batches_of
from tests.support.random_graphs import graph_of

GRAPH = graph_of([1, 1, 2, 0, 0], [[], [], [0, 1], [], []])


def schedule_of(*batches: list[int]) -> Schedule:
    order = np.array([v for batch in batches for v in batch], dtype=np.int32)
    return Schedule(order, np.cumsum([0, *map(len, batches)]))


def test_batches_are_slices_of_the_order() -> None:
    schedule = schedule_of([0, 1], [2])
    assert schedule.n_batches == 2
    assert batches_of(schedule) == [[0, 1], [2]]


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


@pytest.mark.parametrize("starts", [[0, 1], [1, 2], [0, 3], []])
def test_starts_must_span_the_order(starts: list[int]) -> None:
    with pytest.raises(ScheduleError, match="batch starts must run from 0 to 2"):
        Schedule(np.array([0, 1]), np.array(starts, dtype=np.int32))


@pytest.mark.parametrize("starts", [[0, 0, 2], [0, 1, 1, 2], [0, 2, 1, 2]])
def test_an_empty_batch_is_refused(starts: list[int]) -> None:
    with pytest.raises(ScheduleError, match="empty batch"):
        Schedule(np.array([0, 1]), np.array(starts))


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
