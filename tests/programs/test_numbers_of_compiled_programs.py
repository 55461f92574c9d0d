"""Numbers that compiled programs compute are Python's own, and so are their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.compiler.compiled import compiled
from harness.programs.compiling import kept_numbers

SHORT, LONG, REAL = st.integers(-(2**50), 2**50), st.integers(-(2**61), 2**61), st.floats()
COMPILED = settings(deadline=None)


@compiled
def divided(a: int, b: int) -> tuple[float, int, int]:
    return (
        kept_numbers.quotient(a, b),
        kept_numbers.whole_quotient(a, b),
        kept_numbers.whole_rest(a, b),
    )


@compiled
def divided_reals(a: float, b: float) -> tuple[float, float, float]:
    return (
        kept_numbers.quotient(a, b),
        kept_numbers.real_quotient(a, b),
        kept_numbers.real_rest(a, b),
    )


@compiled
def divided_by_whole(a: float, b: int) -> tuple[float, float, float]:
    return (
        kept_numbers.quotient(a, b),
        kept_numbers.real_quotient(a, b),
        kept_numbers.real_rest(a, b),
    )


@compiled
def multiplied(a: int, b: int) -> int:
    return int(kept_numbers.times(a, b))


@compiled
def added(a: int, b: int) -> int:
    return int(kept_numbers.plus(a, b))


def check_same(divide: Callable[..., Any], a: float, b: float) -> None:
    if b == 0:
        with pytest.raises(ZeroDivisionError):
            divide(a, b)
        return
    for found, wanted in zip(divide(a, b), (a / b, a // b, a % b), strict=True):
        assert found == wanted or (math.isnan(found) and math.isnan(wanted))


@COMPILED
@given(SHORT, SHORT)
@example(-7, 2)
@example(7, -2)
def test_whole_numbers_are_divided_as_by_python(a: int, b: int) -> None:
    check_same(divided, a, b)


@COMPILED
@given(LONG, LONG)
@example(-1, 2**61)
def test_long_numbers_are_divided_as_by_python(a: int, b: int) -> None:
    """But for their quotient as a float, which is rounded twice."""
    if b != 0:
        assert divided(a, b)[1:] == divmod(a, b)


@COMPILED
@given(REAL, REAL)
@example(-1.0, math.inf)
@example(5e-324, -1e308)
@example(1.0, 0.1)
@example(-0.5, 3.0)
def test_floats_are_divided_as_by_python(a: float, b: float) -> None:
    check_same(divided_reals, a, b)


@COMPILED
@given(REAL, SHORT)
def test_a_float_is_divided_by_a_whole_number_as_by_python(a: float, b: int) -> None:
    check_same(divided_by_whole, a, b)


@COMPILED
@given(LONG, LONG)
def test_numbers_of_few_bits_are_computed_and_others_are_faults(a: int, b: int) -> None:
    for compute, wanted in ((multiplied, a * b), (added, a + b)):
        if abs(wanted) < 2**60:
            assert compute(a, b) == wanted
        elif abs(wanted) > 2**62:
            with pytest.raises(OverflowError, match="more than 62 bits"):
                compute(a, b)
