"""Numbers that compiled programs compute are Python's own, and so are their errors."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.compiler.compiled import compiled
from harness.programs.compiling import kept_numbers
from tests.support.compiled_programs import by_compiled_code, by_python, translated
from tests.support.program_models import SENTENCES
from tests.support.written_programs import HEAD, indented, model_of

REAL, WHOLE = st.floats(), st.integers(-(2**63), 2**63 - 1)
COMPUTED = ("self.a + self.b", "self.a - self.b", "self.a * self.b", "self.a % self.b", "-self.a")


@settings(deadline=None)
@given(REAL, REAL)
@example(-1.0, math.inf)
@example(5e-324, -1e308)
@example(1.0, 0.1)
@example(-0.5, 3.0)
def test_floats_leave_the_rest_that_python_leaves(a: float, b: float) -> None:
    if b == 0:
        with pytest.raises(ZeroDivisionError):
            rest(a, b)
        return
    found, wanted = rest(a, b), a % b
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))


@compiled
def rest(a: float, b: float) -> float:
    return kept_numbers.rest(a, b)


@pytest.mark.parametrize("text", COMPUTED)
def test_whole_numbers_are_pythons_or_an_error(text: str) -> None:
    body = "\n".join(indented(f"v = p.unary_a(v, label=({text}) % 1000003)", 1))
    model = model_of(HEAD.format(body=body, branch="    a = v", walk="    a = v"))
    model.a = model.b = 1  # type: ignore[attr-defined]
    programs = translated(model)

    @settings(deadline=None)
    @given(WHOLE, WHOLE)
    @example(-(2**63), -1)
    @example(2**63 - 1, 1)
    @example(-7, 3)
    @example(7, -3)
    @example(1, 0)
    def check(a: int, b: int) -> None:
        model.a, model.b = a, b  # type: ignore[attr-defined]
        try:
            number = eval(text, {"self": model})
        except ZeroDivisionError:
            number = 2**63
        if -(2**63) <= number < 2**63 and not ("%" in text and b == -1):
            found = by_compiled_code(programs, model.recording, SENTENCES[:1])
            assert found == by_python(model.recording, SENTENCES[:1])
        else:
            with pytest.raises((OverflowError, ZeroDivisionError)):
                by_compiled_code(programs, model.recording, SENTENCES[:1])

    check()
