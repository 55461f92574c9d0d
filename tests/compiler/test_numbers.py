"""Operators on numbers compute the same as Python and NumPy, also at the limits of their range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import load_generated
from tests.support.both_ways import assert_same, run_both_on

MOST = 2**63 - 1
SMALL = st.integers(-(2**24), 2**24)  # for operations with a float, which represents all of them
WORDS = st.one_of(st.sampled_from((0, 1, -1, 2, 63, 64, MOST, -MOST)), st.integers(-MOST, MOST))
ENDS = st.sampled_from((0.0, -0.0, 0.5, math.inf, -math.inf, math.nan))
FLOATS = st.one_of(ENDS, st.floats()).map(np.float64)  # Python's would adapt to a float32
SINGLES = st.floats(width=32).map(np.float32)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": SMALL, "bool": st.booleans(), "float": FLOATS, "np.float32": SINGLES,
}  # fmt: skip
BOTH = (
    "a + b", "a - b", "a * b", "a == b", "a != b", "a < b", "a <= b", "a > b", "a >= b",
    "a in (b, 3)", "a not in (b, 3)", "a < b < 3", "not a", "not (a and b)", "1 if a or b else 2",
)  # fmt: skip
CHOICES = ("min(a, b)", "max(a, b)", "a if a > b else b", "a and b", "a or b", "a or b or a and 5")
SIGNS = ("-a", "+a", "abs(a)", "a * 0.5", "a + 1", "a * a * a", "float(a)", "a / 4")
WHOLE = ("a & b", "a | b", "a ^ b", "~a", "a * 3 - b", "a * b + a")
DIVIDED = ("a // b", "a % b", "a // b * b + a % b", "a / b")
BY_CONSTANTS = tuple(
    f"a {operator} {divisor}" for operator in ("//", "%") for divisor in (1, 2, -2, 8, 7, -7, 2**40)
)
SHIFTS = ("a >> b", "a << 3", "a >> 63", "(a & 255) << 40 >> 45", "1 << (b & 15)")
NUMPY = ("np.int32(a & 1023) + 5", "np.int64(a) * 2", "bool(a) + 1", "int(a)", "np.float32(a) / 2")
TEXT = "import numpy as np\nfrom dynbatch.harness.compiler.compiled import compiled\n"
FUNCTION = "\n\n@compiled\ndef f{k}(a: {a}, b: {b}) -> object:\n    return {expression}\n"


def functions_of(a: str, b: str) -> dict[str, Any]:
    """Return compiled functions of two kinds of numbers, by their expressions."""
    whole = {a, b} <= {"int", "bool"}
    expressions = [*BOTH, *CHOICES]
    expressions += [*SIGNS] if a == b else []
    expressions += [*WHOLE, *DIVIDED] if whole else []
    expressions += [*BY_CONSTANTS, *SHIFTS, *NUMPY] if a == b == "int" else []
    parts = [FUNCTION.format(k=k, a=a, b=b, expression=e) for k, e in enumerate(expressions)]
    text = TEXT + "".join(parts)
    return {e: load_generated(text, f"f{k}") for k, e in enumerate(expressions)}


@pytest.mark.parametrize("b", KINDS)
@pytest.mark.parametrize("a", KINDS)
def test_operators_match_python(a: str, b: str) -> None:
    functions = functions_of(a, b)

    @settings(deadline=None, max_examples=30)  # the first call compiles
    @given(WORDS if a == b == "int" else KINDS[a], KINDS[b])
    def check(x: Any, y: Any) -> None:
        for expression, function in functions.items():
            if not is_defined(expression, x, y):
                continue
            note(expression)
            with np.errstate(all="ignore"):
                found, expected = function(x, y), function.function(x, y)
            if expression in CHOICES or expression in SIGNS or a != b:
                expected = type(found)(expected)  # one kind for both ways, or float32 as float
            assert_same(found, as_word(expected))

    check()


def is_defined(expression: str, x: Any, y: Any) -> bool:
    """Return True if Python raises no error and needs no float with more than 53 bits."""
    if expression == "a / b" and abs(x) >= 2**53:
        return False
    return bool(y) if expression in DIVIDED else expression != "a >> b" or y >= 0


def as_word(value: Any) -> Any:
    """Return Python's integer as one of 64 bits."""
    is_word = isinstance(value, int) and not isinstance(value, bool)
    return (value + 2**63) % 2**64 - 2**63 if is_word else value


UNSIGNED = (
    "x + y", "x - y", "x * y", "x // y", "x % y", "x & y", "x | y", "x ^ y", "x << y", "x >> y",
    "x == y", "x < y", "x >= y", "min(x, y)", "max(x, y)", "abs(x)", "~x", "x // 3", "x % 8",
    "x > 2**63", "max(3, x)", "x in (y, 5)", "float(x)", "x / y", "bool(x)", "int(x >> 1)",
    "x if y else 7",
)  # fmt: skip
WIDE = "\n\n@compiled\ndef f{k}(a: int, b: int) -> object:\n    x, y = {values}\n    return {e}\n"


def test_unsigned_operators_match_numpy() -> None:
    values = "np.uint64(np.int64(a)), np.uint64(np.int64(b))"
    text = TEXT + "".join(WIDE.format(k=k, values=values, e=e) for k, e in enumerate(UNSIGNED))
    functions = {e: load_generated(text, f"f{k}") for k, e in enumerate(UNSIGNED)}

    @settings(deadline=None)
    @given(WORDS, WORDS)
    def check(a: int, b: int) -> None:
        for expression, function in functions.items():
            note(expression)
            if b or expression not in ("x // y", "x % y", "x / y"):
                with np.errstate(all="ignore"):
                    assert_same(function(a, b), function.function(a, b))

    check()


@compiled
def shifted(a: int, n: int) -> tuple[int, int]:
    x = np.int64(a)
    return x << n, x >> n


@compiled
def rounded(x: float, y: np.float32, n: int) -> tuple[float, ...]:
    return (
        np.floor(x), np.floor(y), math.sqrt(abs(x)), math.exp(x), math.log(abs(x) + 1.0),
        math.sqrt(abs(n)), float(int(x)), abs(x), abs(y), math.fmod(x, 3.5), x * x * x,
    )  # fmt: skip


@compiled
def roots(x: np.float32) -> tuple[bool, bool]:
    root = math.sqrt(x) * 0.1
    return float(root) == float(np.float32(root)), float(x) / 3 == float(np.float32(x / 3))


def test_a_root_of_a_float32_is_one() -> None:
    assert roots(np.float32(2)) == (True, False)


@compiled
def ordered(a: float, b: float, c: float) -> tuple[float, ...]:
    return min(a, b, c), max(a, b, c), min((a, b)), max(b, (a, c)[1])


@compiled
def unsigned(x: float) -> Any:
    return np.uint64(x)


@compiled
def bits_of(x: np.float32) -> tuple[int, np.float32]:
    return int(x.view(np.int32)), x.view(np.int32).view(np.float32)


SINGLE_OF_SIZE = st.floats(-500, 500, width=32).map(np.float32)
SAME: dict[str, tuple[Any, ...]] = {
    "a shift by more bits than there are leaves none": (shifted, WORDS, st.integers(0, 200)),
    "functions are those of Python": (
        rounded, st.floats(-500, 500), SINGLE_OF_SIZE, st.integers(-500, 500)
    ),
    "nan in the least and the most": (ordered, FLOATS, FLOATS, FLOATS),
    "64 bits without a sign": (unsigned, st.floats(0, 2**64, exclude_max=True)),
    "the bits of a float32": (bits_of, SINGLES),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_functions_of_numbers_are_those_of_python(name: str) -> None:
    run_both_on(*SAME[name])


TWO, HALF, SINGLE, UNSIGNED_ONE = 2, np.float64(0.5), np.float32(0.1), np.uint64(1)


@compiled
def with_constants(x: np.float32, n: int) -> tuple[Any, ...]:
    return (
        x * TWO, x * 0.1, x * HALF, x * SINGLE, n + TWO**3, TWO / 4, -TWO // 3, 7 % -TWO, not TWO,
        n * True, UNSIGNED_ONE + 1, 1e300 * 1e10, 2**62 + n, max(0.0, x) * 0.1,
        (x, n)[min(TWO, 1)], TWO if n else HALF,
    )  # fmt: skip


@given(SINGLES, st.integers(0, 5))
def test_literals_adapt_their_type_and_numpy_constants_do_not(x: np.float32, n: int) -> None:
    with np.errstate(all="ignore"):
        found, expected = with_constants(x, n), with_constants.function(x, n)
    assert_same(found[:-1], expected[:-1])
    assert found[-1] == expected[-1]


@compiled
def whole_or_not(x: bool, n: int) -> tuple[Any, ...]:
    return 1 if x else n, 1 if x else 2.5, x if n else 3, n if x else True


@given(st.booleans(), st.integers(-2, 2))
def test_a_choice_is_of_the_kind_that_holds_both(x: bool, n: int) -> None:
    found = whole_or_not(x, n)
    assert [type(one) for one in found] == [int, float, int, int]
    assert found == whole_or_not.function(x, n)
