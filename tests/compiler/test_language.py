"""Statements, calls, tuples and names mean in compiled functions what they mean in Python."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness.compiler.compiled import compiled
from harness.compiler.generated import load_generated
from harness.compiler.registry import helper
from harness.errors import CompileError
from tests.support.both_ways import run_both

NUMBERS = st.lists(st.integers(-5, 5), max_size=8).map(lambda x: np.array(x, np.int64))
SMALL = st.integers(-6, 6)
Words = NDArray[np.int64]


class Pair(NamedTuple):
    """Two of a kind."""

    number: int
    share: float


@compiled
def counted(begin: int, end: int, step: int) -> tuple[int, int, int]:
    n, last, total = 0, -99, 0
    for k in range(begin, end, step):
        n, last = n + 1, k
        end += 10  # a range keeps what it was made of
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


@given(SMALL, SMALL, SMALL.filter(bool))
def test_a_range_counts_as_in_python(begin: int, end: int, step: int) -> None:
    run_both(counted, begin, end, step)


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


@given(NUMBERS, SMALL)
def test_loops_are_left_and_gone_on_with(x: Words, wanted: int) -> None:
    run_both(searched, x, wanted)


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


@given(SMALL)
def test_a_loop_over_a_tuple_has_a_copy_of_its_body_for_each(x: int) -> None:
    run_both(unrolled, x)


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


@given(SMALL, SMALL)
def test_choices_return_early(a: int, b: int) -> None:
    run_both(decided, a, b)


@helper
def noted(log: Words, value: int) -> int:
    """Note that it was called."""
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


@given(*[st.integers(0, 3)] * 3)
def test_what_decides_nothing_is_not_evaluated(a: int, b: int, c: int) -> None:
    run_both(lazily, np.zeros(2, np.int64), a, b, c)


@helper
def turned(pair: Pair, at: tuple[int, int] = (1, 2), *, by: float = 0.5) -> Pair:
    """Return another pair; only what differs from the defaults is given."""
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


@given(SMALL, st.floats(-3, 3))
def test_tuples_are_values(a: int, x: float) -> None:
    run_both(in_tuples, a, x)


@compiled
def none_of(x: Words, value: int) -> None:
    """Has no result."""
    if len(x) == 0:
        return
    x[0] = value
    nothing = None
    if nothing is None and x is not None:
        x[0] += 1


@given(NUMBERS, SMALL)
def test_a_function_may_return_nothing(x: Words, value: int) -> None:
    run_both(none_of, x, value)


@helper
def checked(x: Words, k: int) -> int:
    """Return an element, or raise an error."""
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


@given(NUMBERS, st.integers(-2, 8))
def test_errors_go_through_helpers_and_loops(x: Words, k: int) -> None:
    run_both(fails, x, k)


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
def same_name(x: Any) -> Any:  # as the two above
    return x + x


@compiled
def of_same_names(n: int, x: float) -> tuple[int, int, int, float, int]:
    max = n
    return first(max), second(n), same_name(n), same_name(x), twice_of_another(n)


@given(SMALL, st.floats(-3, 3))
def test_functions_with_one_name_are_several(n: int, x: float) -> None:
    run_both(of_same_names, n, x)


def test_a_nested_function_has_the_numbers_around_it() -> None:
    made = []
    for factor in (3, 4):

        @compiled
        def run(n: int) -> int:
            return n * factor  # noqa: B023

        assert run(5) == 5 * factor
        made.append(run)
    assert [one(2) for one in made] == [6, 8]  # each keeps what it was when it was compiled


@compiled
def maybe_assigned(n: int) -> tuple[int, float]:
    for k in range(n):
        found, share = k, 0.5
    return found, share


def test_what_was_never_assigned_is_0() -> None:
    run_both(maybe_assigned, 3)
    assert maybe_assigned(0) == (0, 0.0)


HEAD = """\
import numpy as np
from numpy.typing import NDArray
from typing import Annotated, NamedTuple
from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.errors import CompileError

LIMIT, TABLE = 5, {"a": 1}

@helper
def add(a, b=1):
    return a + b

@helper
def loops(n):
    return loops(n - 1) if n else 0

@helper
def ends(n):
    if n > 0:
        return 1

@helper
def deeper(n):
    return wrong(n)

@helper
def wrong(n):
    return n + None

@compiled
def run(n: int, x: NDArray[np.float64], y: Annotated[NDArray[np.int32], 2]) -> object:
"""
REFUSED = [
    ("n = n / 2", "n changes what it is: float64 is not converted to int64"),
    ("flag = True; flag = 2", "flag changes what it is: int64 is not converted to bool"),
    ("m = 0.5 if n else x", "either float or array of float64 in 1"),
    ("m = (1, n) if n else (1, 2, 3)", "either tuple of 2 or tuple of 3"),
    ("m = (1, 2); m = (1, n, n)", "m changes what it is: tuple of 3 where tuple of 2 is"),
    ("m = x; m = y", "array of int32 in 2 dimension(s) where array of float64 in 1"),
    ("a, b, c = 1, n", "only tuples of 3 and arrays are taken apart"),
    ("print(m); m = 1", "m has no value above this line"),
    ("m += 1; m = 1", "m has no value above this line"),
    ("LIMIT = LIMIT + 1", "LIMIT has no value above this line"),
    ("m = nowhere", "nowhere is not defined"),
    ("m = TABLE['a']", "only arrays, pointers and tuples have parts"),
    ("m = TABLE.get", "get of dict is not known"),
    ("n = loops(n)", "loops calls itself; called in"),
    ("n = run(n, x, y)", "run calls itself"),
    ("n = ends(n)", "a way through the function ends without a return"),
    ("n = add(n, n, n)", "TypeError: too many positional arguments"),
    ("n = add(n, c=1)", "unexpected keyword argument 'c'"),
    ("n = add()", "missing a required argument: 'a'"),
    ("n = deeper(n)", "line 29, is not compiled: NoneType is no number; called in"),
    ("n = (1, 2)[n]", "which of 2 parts is wanted is a constant"),
    ("n = (1, 2)[2]", "which of 2 parts is wanted is a constant"),
    ("for k in range(0, n, 0): pass", "the step of a range is not 0"),
    ("for k in range(x[0]): pass", "float64 is not converted to int64"),
    ("for k in range(1, 2, 3, n): pass", "a range has a begin, an end and a step"),
    ("for k in n: pass", "a loop is over a range, an array or a tuple"),
    ("for k in enumerate(x): pass", "enumerate is not compiled"),
    ("while n: n -= 1\n    else: n = 2", "a loop has no else"),
    ("for k in x: n = 1\n    else: n = 2", "a loop has no else"),
    ("raise CompileError('text')", "only errors of Python's are raised, with one constant text"),
    ("raise ValueError", "only errors of Python's are raised, with one constant text"),
    ("raise ValueError(n)", "only errors of Python's are raised, with one constant text"),
    ("raise add('text')", "only errors of Python's are raised, with one constant text"),
    ("if x: n = 1", "an array is neither true nor false"),
    ("n = 1 if not y else 2", "an array is neither true nor false"),
    ("n = bool(x)", "array of float64 in 1 dimension(s) is no number"),
    ("n.real = 1", "nothing is assigned to a Attribute"),
    ("n.real += 1", "an operator changes a name or an element"),
    ("del n", "no Delete is compiled"),
    ("assert n", "no Assert is compiled"),
    ("with n: pass", "no With is compiled"),
    ("m = [k for k in x]", "no ListComp is compiled"),
    ("m = add(*x)", "no Starred is compiled"),
    ("if n: return 1", "a way through the function ends without a return"),
    ("if n: return 1\n    return 0.5", "float64 is not converted to int64"),
    ("if n: return 1\n    return", "NoneType where int64 is expected|NoneType is no number"),
    ("return print", "returns builtin_function_or_method to Python"),
    ("return 'text'", "returns str to Python"),
]


@pytest.mark.parametrize(("body", "error"), REFUSED)
def test_what_the_language_lacks_is_refused_by_its_line(body: str, error: str) -> None:
    parts = error.split("|")
    with pytest.raises(CompileError) as caught:
        load_generated(f"{HEAD}    {body}\n", "run")(1, np.zeros(2), np.zeros((2, 2), np.int32))
    assert any(part in str(caught.value) for part in parts), str(caught.value)
    if "returns" not in error:
        assert ", line " in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("def run(*n: int): return 1", "*arguments"),
        ("def run(n: int): yield n", "yield"),
        ("async def run(n: int): return n", "wait"),
        ("def run(n): return n", "declare 'n'"),
        ("def run(n: Words): return n", "declare name 'Words' is not defined"),
        ("def run(n: list[int]): return n", "declare list[int] does not say"),
        ("def run(n: NDArray): return n", "does not say which elements"),
        ("def run(n: NDArray[np.complex128]): return n", "does not say which elements"),
        ("def run(n: Annotated[int, 2]): return n", "does not say which elements"),
        ("def run(n: None): return n", "does not say which elements"),
    ],
)
def test_functions_that_cannot_be_compiled(function: str, error: str) -> None:
    imports = HEAD[: HEAD.index("LIMIT")]
    text = f"from __future__ import annotations\n{imports}@compiled\n{function}\n"
    with pytest.raises(CompileError) as caught:
        load_generated(text, "run")(1)
    assert error in str(caught.value)
