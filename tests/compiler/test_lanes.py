"""Lanes compute the same as NumPy, also at the limits of their range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.lanes import (
    MAX_SHORT,
    MOST,
    N_LANES,
    Rows,
    ShortRows,
    add_saturated,
    broadcast_number,
    load,
    multiply_lanes,
    shift_right,
    store,
    subtract_saturated,
    take_maximum,
    take_minimum,
    widen_lanes,
)
from dynbatch.harness.errors import CompileError


def numbers(highest: int) -> st.SearchStrategy[list[int]]:
    ends = st.sampled_from((0, 1, 7, 8, 15, 16, highest - 1, highest))
    number = st.one_of(ends, st.integers(0, highest))
    return st.lists(number, min_size=N_LANES, max_size=N_LANES)


def compiled_pair(operation: Any, lane: type) -> Callable[[list[int], list[int]], list[int]]:
    """Return an operation on two rows, each in the second half of an array's row."""

    @compiled
    def run(rows: Rows) -> None:
        store(rows, 0, 0, operation(load(rows, 0, N_LANES), load(rows, 1, N_LANES)))

    @compiled
    def run_short(rows: ShortRows) -> None:
        store(rows, 0, 0, operation(load(rows, 0, N_LANES), load(rows, 1, N_LANES)))

    def call(one: list[int], other: list[int]) -> list[int]:
        rows = np.array([[0] * N_LANES + one, [7] * N_LANES + other], lane)
        (run if lane is np.uint16 else run_short)(rows)
        assert rows[0, N_LANES:].tolist() == one
        assert rows[1].tolist() == [7] * N_LANES + other
        return rows[0, :N_LANES].tolist()

    return call


OPERATIONS: dict[str, tuple[Any, Callable[[int, int, int], int]]] = {
    "higher": (take_maximum, lambda one, other, _: max(one, other)),
    "lower": (take_minimum, lambda one, other, _: min(one, other)),
    "plus": (add_saturated, lambda one, other, highest: min(one + other, highest)),
    "minus": (subtract_saturated, lambda one, other, _: max(one - other, 0)),
    "times": (multiply_lanes, lambda one, other, highest: one * other % (highest + 1)),
    "halved": (
        shift_right,
        lambda one, other, highest: one >> min(other, highest.bit_length() - 1),
    ),
}
WIDTHS = {MOST: np.uint16, MAX_SHORT: np.uint8}
COMPILED = {
    (name, highest): compiled_pair(operation, lane)
    for name, (operation, _) in OPERATIONS.items()
    for highest, lane in WIDTHS.items()
}


@pytest.mark.parametrize("highest", WIDTHS)
@pytest.mark.parametrize("name", OPERATIONS)
@settings(deadline=None, max_examples=20)  # the first call compiles
@given(data=st.data())
def test_every_lane_is_computed_by_itself(name: str, highest: int, data: st.DataObject) -> None:
    one, other = data.draw(numbers(highest)), data.draw(numbers(highest))
    _, expected = OPERATIONS[name]
    for a, b in ((one, other), ([highest] * N_LANES, list(range(N_LANES)))):
        found = COMPILED[name, highest](a, b)
        assert found == [expected(x, y, highest) for x, y in zip(a, b, strict=True)]


@compiled
def _widened(rows: Rows, into: Rows) -> None:
    store(into, 0, 0, widen_lanes(load(rows, 0, 0)))


@compiled
def _widened_short(rows: ShortRows, into: Rows) -> None:
    store(into, 0, 0, widen_lanes(load(rows, 0, 0)))


@pytest.mark.parametrize("highest", WIDTHS)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_wide_lanes_hold_the_same_numbers(highest: int, data: st.DataObject) -> None:
    row = data.draw(numbers(highest))
    into = np.zeros((1, N_LANES), np.uint16)
    widen = _widened if highest == MOST else _widened_short
    widen(np.array([row], WIDTHS[highest]), into)
    assert into[0].tolist() == row


def test_lanes_of_two_widths_are_refused() -> None:
    @compiled
    def run(rows: Rows, short: ShortRows) -> None:
        store(rows, 0, 0, add_saturated(load(rows, 0, 0), load(short, 0, 0)))

    with pytest.raises(CompileError, match="equal width"):
        run(np.zeros((1, N_LANES), np.uint16), np.zeros((1, N_LANES), np.uint8))


@compiled
def _filled(rows: Rows, row: int, number: int) -> None:
    store(rows, row, 0, broadcast_number(rows, number))


@compiled
def _filled_short(rows: ShortRows, row: int, number: int) -> None:
    store(rows, row, 0, broadcast_number(rows, number))


@pytest.mark.parametrize("highest", WIDTHS)
@settings(deadline=None, max_examples=20)
@given(data=st.data(), row=st.integers(0, 2))
def test_a_number_goes_to_every_lane_of_a_row_and_nowhere_else(
    highest: int, data: st.DataObject, row: int
) -> None:
    number = data.draw(st.integers(0, highest))
    rows = np.full((3, N_LANES), 5, WIDTHS[highest])
    (_filled if highest == MOST else _filled_short)(rows, row, number)
    expected = np.full_like(rows, 5)
    expected[row] = number
    np.testing.assert_array_equal(rows, expected)
