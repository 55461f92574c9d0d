"""Compiled functions that others call by their addresses: their errors, and their memory."""

from __future__ import annotations

import numpy as np
import pytest

from harness.compiler.compiled import compiled
from harness.compiler.pointers import FAILED, call_for_number
from tests.support.given_out import count_given_out

MOST = 10_000


@compiled
def counts(n: int) -> int:
    """Makes an array, and fails where it is large."""
    made = np.zeros(n, dtype=np.int64)
    if n > MOST:
        raise ValueError("too many")
    return len(made)


@compiled
def nothing_of(n: int) -> None:
    """Fails without a number to return."""
    if n > 0:
        raise ValueError("too many")


@compiled
def asks(address: int, n: int) -> int:
    """Calls another function."""
    return call_for_number(address, (n,))


def test_an_error_is_a_number_and_of_that_call_alone() -> None:
    assert asks(counts.address, MOST) == MOST
    assert asks(counts.address, MOST + 1) == FAILED
    assert asks(counts.address, MOST) == MOST
    assert counts(MOST) == MOST
    with pytest.raises(ValueError, match="too many"):
        counts(MOST + 1)
    assert asks(counts.address, MOST) == MOST


def test_what_could_not_tell_of_an_error_has_no_address() -> None:
    with pytest.raises(KeyError):
        assert nothing_of.address
    with pytest.raises(ValueError, match="too many"):
        nothing_of(1)


def test_memory_is_given_back() -> None:
    asks(counts.address, MOST)
    before = count_given_out()
    for _ in range(100):
        asks(counts.address, MOST)
    assert count_given_out() - before < 8 * MOST
