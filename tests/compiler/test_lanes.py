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
    load,
    store,
)
from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.errors import CompileError


def numbers(highest: int) -> st.SearchStrategy[list[int]]:
    ends = st.sampled_from((0, 1, 7, 8, 15, 16, highest - 1, highest))
    number = st.one_of(ends, st.integers(0, highest))
    return st.lists(number, min_size=N_LANES, max_size=N_LANES)


# One function for each operation on two rows, in the second half of an array's row, and two more.
TEXT = """
from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.lanes import *
"""
OPERATION = """
@compiled
def {name}_rows(rows: {rows}) -> None:
    store(rows, 0, 0, {name}(load(rows, 0, N_LANES), load(rows, 1, N_LANES)))
"""
OTHERS = """
@compiled
def widen(rows: {rows}, into: Rows) -> None:
    store(into, 0, 0, widen_lanes(load(rows, 0, 0)))

@compiled
def fill(rows: {rows}, row: int, number: int) -> None:
    store(rows, row, 0, broadcast_number(rows, number))
"""
EXPECTED: dict[str, Callable[[int, int, int], int]] = {
    "take_maximum": lambda one, other, _: max(one, other),
    "take_minimum": lambda one, other, _: min(one, other),
    "add_saturated": lambda one, other, highest: min(one + other, highest),
    "subtract_saturated": lambda one, other, _: max(one - other, 0),
    "multiply_lanes": lambda one, other, highest: one * other % (highest + 1),
    "shift_right": lambda one, other, highest: one >> min(other, highest.bit_length() - 1),
}
WIDTHS = {MOST: np.uint16, MAX_SHORT: np.uint8}


def compiled_for(highest: int, name: str) -> Any:
    """Return a function for rows of numbers up to `highest`."""
    text = TEXT + "".join(OPERATION.format(name=one, rows="{rows}") for one in EXPECTED) + OTHERS
    return load_generated(text.format(rows="Rows" if highest == MOST else "ShortRows"), name)


def apply_to_rows(name: str, highest: int, one: list[int], other: list[int]) -> list[int]:
    rows = np.array([[0] * N_LANES + one, [7] * N_LANES + other], WIDTHS[highest])
    compiled_for(highest, f"{name}_rows")(rows)
    assert rows[0, N_LANES:].tolist() == one
    assert rows[1].tolist() == [7] * N_LANES + other
    return rows[0, :N_LANES].tolist()


@pytest.mark.parametrize("highest", WIDTHS)
@pytest.mark.parametrize("name", EXPECTED)
@settings(deadline=None, max_examples=20)  # the first call compiles
@given(data=st.data())
def test_every_lane_is_computed_by_itself(name: str, highest: int, data: st.DataObject) -> None:
    one, other = data.draw(numbers(highest)), data.draw(numbers(highest))
    for a, b in ((one, other), ([highest] * N_LANES, list(range(N_LANES)))):
        found = apply_to_rows(name, highest, a, b)
        assert found == [EXPECTED[name](x, y, highest) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("highest", WIDTHS)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_wide_lanes_hold_the_same_numbers(highest: int, data: st.DataObject) -> None:
    row = data.draw(numbers(highest))
    into = np.zeros((1, N_LANES), np.uint16)
    compiled_for(highest, "widen")(np.array([row], WIDTHS[highest]), into)
    assert into[0].tolist() == row


def test_lanes_of_two_widths_are_refused() -> None:
    @compiled
    def run(rows: Rows, short: ShortRows) -> None:
        store(rows, 0, 0, add_saturated(load(rows, 0, 0), load(short, 0, 0)))

    with pytest.raises(CompileError, match="equal width"):
        run(np.zeros((1, N_LANES), np.uint16), np.zeros((1, N_LANES), np.uint8))


@pytest.mark.parametrize("highest", WIDTHS)
@settings(deadline=None, max_examples=20)
@given(data=st.data(), row=st.integers(0, 2))
def test_a_number_goes_to_every_lane_of_a_row_and_nowhere_else(
    highest: int, data: st.DataObject, row: int
) -> None:
    number = data.draw(st.integers(0, highest))
    rows = np.full((3, N_LANES), 5, WIDTHS[highest])
    compiled_for(highest, "fill")(rows, row, number)
    expected = np.full_like(rows, 5)
    expected[row] = number
    np.testing.assert_array_equal(rows, expected)
