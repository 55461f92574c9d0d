"""Execution of a function both compiled and in Python, with comparison of results and errors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import Compiled

_KINDS = ((bool, bool | np.bool_), (int, int | np.integer), (float, float | np.floating))


def run_both(function: Compiled[..., Any], *arguments: Any) -> Any:
    """Return the result or error of a compiled function; assert that Python gives the same."""
    ours, plain = copy.deepcopy(arguments), copy.deepcopy(arguments)
    with np.errstate(over="ignore"):
        expected = _outcome(function.function, plain)
    found = _outcome(function, ours)
    assert_same(found, expected)
    np.testing.assert_equal(ours, plain)
    return found


def run_both_on(function: Compiled[..., Any], *strategies: st.SearchStrategy[Any]) -> None:
    """Do the same for arguments that hypothesis draws."""

    @given(st.tuples(*strategies))
    def check(arguments: tuple[Any, ...]) -> None:
        run_both(function, *arguments)

    check()


def assert_same(found: Any, expected: Any) -> None:
    """Assert that a value of a compiled function is equal to that of Python."""
    if isinstance(expected, tuple):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, Exception):
        assert (type(found), str(found)) == (type(expected), str(expected))
    elif expected is None:
        assert found is None
    else:
        kind = next(own for own, all_ in _KINDS if isinstance(expected, all_))
        assert type(found) is kind
        np.testing.assert_array_equal(found, expected)


def _outcome(function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (ArithmeticError, LookupError, ValueError) as error:
        return error
