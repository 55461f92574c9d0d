"""Numbers of compiled programs: what Python computes, or its error; and those that they draw."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.compiler.registry import helper

MOST = 2.0**61  # of a number, either way


@helper
def times(a: int, b: int) -> int:
    """Return a * b; raises OverflowError where Python's would need more than 62 bits."""
    if abs(float(a) * float(b)) > MOST:
        raise OverflowError("a number of more than 62 bits")
    return a * b


@helper
def plus(a: int, b: int) -> int:
    """Return a + b; raises OverflowError where Python's would need more than 62 bits."""
    if abs(float(a) + float(b)) > MOST:
        raise OverflowError("a number of more than 62 bits")
    return a + b


@helper
def quotient(a: Any, b: Any) -> Any:
    """Return a / b of any numbers; raises ZeroDivisionError, as all of these do."""
    if b == 0:
        raise ZeroDivisionError("division by zero")
    return a / b


@helper
def whole_quotient(a: int, b: int) -> int:
    """Return a // b of whole numbers."""
    if b == 0:
        raise ZeroDivisionError("integer division by zero")
    return a // b


@helper
def whole_rest(a: int, b: int) -> int:
    """Return a % b of whole numbers."""
    if b == 0:
        raise ZeroDivisionError("integer modulo by zero")
    return a % b


@helper
def real_quotient(a: Any, b: Any) -> float:
    """Return a // b where one is a float: as CPython computes it, but for the sign of a 0."""
    rest = _plain_rest(a, b)
    exact = (float(a) - rest) / float(b)
    if _differ(rest, b):
        exact -= 1.0
    found = float(np.floor(exact))
    return found + 1.0 if exact - found > 0.5 else found


@helper
def real_rest(a: Any, b: Any) -> float:
    """Return a % b where one is a float: as CPython computes it, but for the sign of a 0."""
    rest = _plain_rest(a, b)
    return rest + float(b) if _differ(rest, b) else rest


@helper
def _plain_rest(a: Any, b: Any) -> float:
    """Return what is left where a quotient is rounded towards 0."""
    if b == 0:
        raise ZeroDivisionError("float modulo")
    return math.fmod(a, b)


@helper
def _differ(rest: float, divisor: Any) -> bool:
    """Return whether a rest has another sign than the divisor."""
    return rest != 0.0 and (rest < 0.0) != (divisor < 0)


@helper
def whole(a: float) -> int:
    """Return int(a); raises OverflowError where that needs more than 62 bits."""
    if not abs(a) <= MOST:
        raise OverflowError("a number of more than 62 bits")
    return int(a)


@helper
def mixed(state: Any, part: int) -> Any:
    """Return what a state becomes by one more number of a key: see harness.programs.decisions."""
    state = (state ^ np.uint64(part)) + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@helper
def drawn(state: Any) -> float:
    """Return the number in [0, 1) that a state stands for."""
    return float(state >> np.uint64(11)) * 2.0**-53
