"""Lanes compute what NumPy computes of the same numbers, at the ends of their range too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.machine.compiled import compiled
from harness.machine.lanes import (
    MOST,
    N_LANES,
    every,
    halved,
    higher,
    load,
    lower,
    minus,
    plus,
    store,
    times,
)

NUMBERS = st.lists(
    st.one_of(st.sampled_from((0, 1, 15, 16, MOST - 1, MOST)), st.integers(0, MOST)),
    min_size=N_LANES,
    max_size=N_LANES,
)


def compiled_pair(operation: Any) -> Callable[[list[int], list[int]], list[int]]:
    """An operation on two rows, each in the second half of a row of an array with two."""

    @compiled
    def run(rows: np.ndarray) -> None:
        store(rows, 0, 0, operation(load(rows, 0, N_LANES), load(rows, 1, N_LANES)))

    def call(one: list[int], other: list[int]) -> list[int]:
        rows = np.array([[0] * N_LANES + one, [7] * N_LANES + other], np.uint16)
        run(rows)
        assert rows[0, N_LANES:].tolist() == one
        assert rows[1].tolist() == [7] * N_LANES + other
        return rows[0, :N_LANES].tolist()

    return call


EXPECTED: dict[str, tuple[Any, Callable[[int, int], int]]] = {
    "higher": (compiled_pair(higher), max),
    "lower": (compiled_pair(lower), min),
    "plus": (compiled_pair(plus), lambda one, other: min(one + other, MOST)),
    "minus": (compiled_pair(minus), lambda one, other: max(one - other, 0)),
    "times": (compiled_pair(times), lambda one, other: one * other % 2**16),
    "halved": (compiled_pair(halved), lambda one, other: one >> min(other, 15)),
}


@pytest.mark.parametrize("name", EXPECTED)
@settings(deadline=None)  # the first call compiles
@given(one=NUMBERS, other=NUMBERS)
@example(one=[MOST] * N_LANES, other=list(range(N_LANES)))
def test_every_lane_is_computed_by_itself(name: str, one: list[int], other: list[int]) -> None:
    found, expected = EXPECTED[name]
    assert found(one, other) == [expected(a, b) for a, b in zip(one, other, strict=True)]


@compiled
def _filled(rows: np.ndarray, row: int, number: int) -> None:
    store(rows, row, 0, every(number))


@settings(deadline=None)
@given(st.integers(0, MOST), st.integers(0, 2))
def test_a_number_goes_to_every_lane_of_a_row_and_nowhere_else(number: int, row: int) -> None:
    rows = np.full((3, N_LANES), 5, np.uint16)
    _filled(rows, row, number)
    expected = np.full((3, N_LANES), 5, np.uint16)
    expected[row] = number
    np.testing.assert_array_equal(rows, expected)
