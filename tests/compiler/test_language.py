"""Statements, calls, tuples and names mean the same in compiled functions as in Python."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from tests.support.both_ways import run_both, run_both_on

NUMBERS = st.lists(st.integers(-5, 5), max_size=8).map(lambda x: np.array(x, np.int64))
SMALL = st.integers(-6, 6)
Words = NDArray[np.int64]


class Pair(NamedTuple):
    number: int
    share: float


@compiled
def counted(begin: int, end: int, step: int) -> tuple[int, int, int]:
    n, last, total = 0, -99, 0
    for k in range(begin, end, step):
        n, last = n + 1, k
        end += 10  # a range does not depend on later values of its bounds
        k *= 100
        total += k
    for k in range(end):
        if k == step:
            continue
        n += k
    for k in range(begin, end):
        n -= k
    for _ in range(end, begin, -2):
        n += 1000
    return n, last, total


@compiled
def searched(x: Words, wanted: int) -> tuple[int, int]:
    skipped, k = 0, 0
    while True:
        if k >= len(x):
            return -1, skipped
        k += 1
        if x[k - 1] == 0:
            skipped += 1
            continue
        for one in x:
            if one < -4:
                break
            if one == wanted and x[k - 1] == wanted:
                return k, skipped
        else_ = 0
        while else_ < 3:
            else_ += 1
            if else_ == 2:
                break
        skipped += else_


@compiled
def unrolled(x: int) -> int:
    total = 0
    for one, factor in ((1, x), (2, x + 1), (3, x + 2)):
        if factor == 2:
            continue
        if factor == 4:
            break
        for _ in range(2):
            if factor == 5:
                return -total
            total += one * factor
    for empty in ():
        total += empty
    return total


@compiled
def decided(a: int, b: int) -> int:
    if a > 3:
        if b > 3:
            return 1
        elif b < -3:
            found = 2
        else:
            return 3
    elif a < -3:
        found = 4
    else:
        found = 5
        if b == 0:
            return 6
    if found == 4 and b == 1:
        return 7
    else:
        return found * 10
    return "what is never reached is not compiled"


@helper
def noted(log: Words, value: int) -> int:
    """Record that it was called."""
    log[0] = log[0] * 10 + value
    return value


@compiled
def lazily(log: Words, a: int, b: int, c: int) -> tuple[bool, int, int, bool, int]:
    chain = noted(log, a) < noted(log, b) < noted(log, c) != 5
    both = noted(log, a) and noted(log, b)
    one = noted(log, a) or noted(log, b) or noted(log, c)
    mixed = not ((noted(log, a) and noted(log, b)) or c > 2)
    chosen = noted(log, b) if a and noted(log, c) else noted(log, 7)
    if noted(log, a) and (noted(log, b) or noted(log, c)):
        log[1] += 1
    while not (noted(log, c) > 0 and log[1] > 3):
        log[1] += 1
        if log[1] > 5:
            break
    return chain, both, one, mixed, chosen


@helper
def turned(pair: Pair, at: tuple[int, int] = (1, 2), *, by: float = 0.5) -> Pair:
    """Return another pair, passing only the arguments that differ from the defaults."""
    return Pair(pair.number * at[1] - at[0], pair.share + by)


@compiled
def in_tuples(
    a: int, x: float
) -> tuple[Pair, tuple[int, tuple[int, float]], int, tuple[int, float], float]:
    pair = Pair(share=x, number=a)
    other = turned(pair, by=x) if a > 0 else turned(pair, (a, 3))
    pair = other if other.share > 1 else Pair(a, pair[1])
    first, (second, third) = a, (pair.number, other[-1])
    first, second = second, first
    second += 1
    return pair, (first, (second, third)), len(pair), (a, x), (1, x)[1]


@compiled
def none_of(x: Words, value: int) -> None:
    if len(x) == 0:
        return
    x[0] = value
    nothing = None
    if nothing is None and x is not None:
        x[0] += 1


@helper
def checked(x: Words, k: int) -> int:
    for one in x:
        while one < -3:
            raise ValueError("too small")
    if k >= len(x) or k < 0:
        raise IndexError("there are not as many")
    return int(x[k])


@compiled
def fails(x: Words, k: int) -> int:
    made = np.zeros(100, np.int64)
    for j in range(2):
        made[j] = checked(x, k + j)
    if made[0] == made[1]:
        raise ZeroDivisionError("the same twice")
    return made[0] - made[1]


def scaled_by(factor: int) -> Any:
    @helper
    def same_name(x: int) -> int:
        return x * factor

    return same_name


def twice(x: int) -> int:
    return -x


first, second = scaled_by(2), scaled_by(3)
twice_of_another = helper(twice)


@helper
def same_name(x: Any) -> Any:  # the same name as the two above
    return x + x


@compiled
def of_same_names(n: int, x: float) -> tuple[int, int, int, float, int]:
    max = n
    return first(max), second(n), same_name(n), same_name(x), twice_of_another(n)


DIGITS = st.integers(0, 3)
SAME: dict[str, tuple[Any, ...]] = {
    "a range counts": (counted, SMALL, SMALL, SMALL.filter(bool)),
    "loops are left and continued": (searched, NUMBERS, SMALL),
    "a loop over a tuple has a copy of its body for each": (unrolled, SMALL),
    "choices return early": (decided, SMALL, SMALL),
    "not all operands are evaluated": (lazily, st.just(np.zeros(2, np.int64)), *[DIGITS] * 3),
    "tuples are values": (in_tuples, SMALL, st.floats(-3, 3)),
    "a function returns nothing": (none_of, NUMBERS, SMALL),
    "errors go through helpers and loops": (fails, NUMBERS, st.integers(-2, 8)),
    "functions with one name are several": (of_same_names, SMALL, st.floats(-3, 3)),
}


@pytest.mark.parametrize("name", SAME)
def test_statements_mean_the_same_as_in_python(name: str) -> None:
    run_both_on(*SAME[name])


def test_a_nested_function_has_the_numbers_around_it() -> None:
    made = []
    for factor in (3, 4):

        @compiled
        def run(n: int) -> int:
            return n * factor  # noqa: B023

        assert run(5) == 5 * factor
        made.append(run)
    assert [one(2) for one in made] == [6, 8]  # each keeps its value from compile time


@compiled
def maybe_assigned(n: int) -> tuple[int, float]:
    for k in range(n):
        found, share = k, 0.5
    return found, share


def test_unassigned_variable_is_zero() -> None:
    run_both(maybe_assigned, 3)
    assert maybe_assigned(0) == (0, 0.0)
