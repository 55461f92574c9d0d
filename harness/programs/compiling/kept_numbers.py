"""Numbers of compiled programs: what Python computes, or its error; and those that they draw."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.compiler.registry import helper


@helper
def rest(a: Any, b: Any) -> float:
    """Return a % b where one is a float: as CPython computes it, but for the sign of a 0."""
    if b == 0:
        raise ZeroDivisionError("float modulo")
    found = math.fmod(a, b)
    return found + float(b) if found != 0.0 and (found < 0.0) != (b < 0) else found


@helper
def whole(a: float) -> int:
    """Return int(a); raises OverflowError where that needs more than 62 bits."""
    if not abs(a) <= 2.0**61:
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
