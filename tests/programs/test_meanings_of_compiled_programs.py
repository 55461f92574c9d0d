"""Compiled programs compute and raise the same as in Python, or Python runs them."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.programs.compiling import runtime
from dynbatch.harness.programs.recording import FAULTS
from tests.support.program_models import SENTENCES
from tests.support.run_programs import by_compiled_code, by_python, check_logs, translated
from tests.support.written_programs import model_of, write_source

# Code that a translation could get wrong silently. Python determines the expected result, and
# records the program if it cannot be compiled.
TRAPS = [
    "i = 3\nread = [p.leaf(word=i) for i in range(2)]\nv = p.unary_a(v, label=i)",
    "i = 3\nv = p.leaf(word=(lambda i: i + 1)(0), label=i)",
    "if self._stops(i + 1):\n    v = p.unary_a(v)",
    "if self._stops(i + 9):\n    v = p.unary_a(v)",
    "x = False\nx = None\nif x:\n    v = p.unary_a(v)",
    "x = False\nx = 3\nv = p.unary_a(v, label=x)",
    "v = p.unary_a(v, label=True if i else 3)",
    "v = p.unary_a(v, label=i == 0)",
    "b, a = ([1, 2, 3], [4])\ni += sum([len(part) for part in (a, b)])",
    "for part in (words, [1, 1]):\n    v = p.unary_a(v, label=len(part) % 4)",
    "c = [1, 2]\nd = [3, 0]\nfor x, y in (c, d):\n    v = p.unary_a(v, label=x)",
    "c = [3, 2, 1]\nif 0 < i < c.pop():\n    pass\nv = p.unary_a(v, label=len(c))",
    "if 0 < i < (yield p.chance(v, 1)):\n    v = p.unary_a(v)",
    "if 0 < i < 10 // i:\n    v = p.unary_a(v)",
    "c = [0, 0, 1, 2]\nc[c.pop()] += 1\nv = p.unary_a(v, label=len(c))",
    "c = sentence.words + sentence.words\nv = p.unary_a(v, label=len(c) % 4)",
    "c = sentence.words * 2\nv = p.unary_a(v, label=len(c) % 4)",
    "h = (sentence.words[0] + 3) * 1000003 + 12345\nh = h * 1000003\ni = int(h) % 4",
    "sentence.words.append(3)",
    "sentence.words[0] = 3",
    "for depth in range(i):\n    pass\nv = p.unary_a(v, label=depth)",
    "for MAX_DEPTH in range(2):\n    pass\nv = p.unary_a(v, label=MAX_DEPTH)",
    "v = p.unary_a(v, label=MAX_DEPTH)",
    "limit = None\nif i:\n    limit = 2\nv = p.many(*[v, v, v][:limit], word=1)",
    "limit = None\nif i:\n    limit = 2\nv = p.unary_a(v, label=bool(limit))",
    "x = None\nif i:\n    x = 1\nv = p.unary_a(v, label=(0 if x is None else x + 1))",
    "x = None\nif i:\n    x = 1\nv = p.unary_a(v, label=x + 1)",
    "x = None\nif i:\n    x = 1\nif x < 3:\n    v = p.unary_a(v)",
    "x = None\nif i:\n    x = 1\nif x == 1 or x != 1:\n    v = p.unary_a(v)",
    "x = None\nif i:\n    x = 1\nfor k in range(x):\n    v = p.unary_a(v)",
    "v = p.unary_a(v, label=None)",
    "for k in range(20):\n    i = i + 1000000000000000000\nv = p.unary_a(v, label=i % 4)",
    "v = p.unary_a(v, label=int(3.7e25) % 4)",
    "v = p.unary_a(v, label=int(-3.7) % 4)",
    "v = p.unary_a(v, label=9223372036854775807 % 4)",
    "v = p.unary_a(v, label=len(range(5, 3)))",
    "r = range(5, 12)\nr = range(1, len(r) + 1)\nfor k in r:\n    v = p.unary_a(v)",
    "k = 1\nf = lambda x: x + k\nk = 2\nv = p.unary_a(v, label=f(0))",
    "k = 1\nf = lambda x, k=k: x + k\nk = 2\nv = p.unary_a(v, label=f(0))",
    "k = 1\nf = self._adds(k)\nk = 2\nv = p.unary_a(v, label=f(0))",
    "c = reversed([1, 2])\nfor k in c:\n    pass\nfor k in c:\n    v = p.unary_a(v)",
    "v = p.unary_a(v, label=1 is True)",
    "c = [1] * 2.5",
    "c = [v, v]\nfor x, y in zip(c, [1], strict=i > 0):\n    v = p.unary_a(v, label=y)",
    "for x, y in zip([v, v], [1], strict=True):\n    v = p.unary_a(v, label=y)",
    "t = (1, 2)\nv = p.unary_a(v, label=t[-1])",
    "t = (1, 2)\nif i:\n    v = p.unary_a(v, label=t[2])",
    "t = (1, 2)\nt = (t[1], t[0])\nv = p.unary_a(v, label=t[0])",
    "t = EVEN if i else ODD\nv = p.unary_a(v, label=int(t[0]))",
    "v = p.unary_a(v, label=SHIFT)",
    "v = p.unary_a(v, label=[1, 2][-LAST])",
    "v = p.unary_a(v, label=int(self.ratio))",
    "x = yield p.chance(of=v)",
    "x = yield p.value(v, 'h', column=2)",
    "i = words[-1] % 3 if len(words) > 1 else -1\nv = p.unary_a(v, label=i % 4)",
    "a = b = []\na.append(v)\nv = p.many(*b, word=0)",
    "c = [v]\nfor one in c:\n    if len(c) < 4:\n        c.append(p.unary_a(one))\nv = c[-1]",
    "i = (-7) // 2 + (-7) % 3\nv = p.unary_a(v, label=i % 4)",
    "d = {2: 1}\nd[2] = 3\nd[1] = 0\nv = p.unary_a(v, label=[d[k] for k in sorted(d)][1])",
    "d = {2: 1}\nd[2] += 2\nv = p.unary_a(v, label=d[2])",
    "d = {2: 1}\nv = p.unary_a(v, label=d[3])",
    "c = []\nif c:\n    v = p.unary_a(v)\nwhile not c:\n    c.append(v)",
    "c = [1, 2]\nc[0] = 3\nc[1] += 1\nv = p.unary_a(v, label=c[0] + c[1] - 3)",
    "c = [k for k in range(5) if k % 2]\nv = p.unary_a(v, label=len(c))",
    "for x in (2, 3):\n    v = p.unary_a(v, label=x)",
    "c = range(5)[1:3]\nv = p.unary_a(v, label=len(c))",
    "a, b = p.concurrent(lambda: p.unary_a(v), lambda: v)\nv = p.binary(a, b)",
    "v = p.unary_a(v, label=min(i + 1, 2) + max(0, 1) + abs(-1) - bool(i) - int(float(i)))",
    "c = list(words)\nv = p.unary_a(v, label=sentence.n_words % 4)",
    "inf = 1.0\nv = p.unary_a(v, label=int(INFINITE > 3.0))",
]
OTHERS = """

def _stops(self, i):
    if i > 3:
        return True


def _adds(self, k):
    return lambda x: x + k
"""
GLOBALS = {
    "MAX_DEPTH": 0,
    "depth": 1,
    "EVEN": np.array([0, 2]),
    "ODD": np.array([1, 3]),
    "SHIFT": IntEnum("Action", {"SHIFT": 2})(2),
    "LAST": -1,
    "INFINITE": math.inf,
}


@pytest.mark.parametrize("text", TRAPS)
def test_compiled_code_matches_python_or_falls_back_to_it(text: str) -> None:
    model = model_of(write_source(text) + OTHERS, **GLOBALS)
    model.ratio = 2.5  # type: ignore[attr-defined]
    quick = model.recording
    quick.translate()
    if quick.programs is None:
        assert re.match(r"Python, since <written program \d+>:\d+ ", quick.run_by), quick.run_by
        return
    programs = translated(model)
    with suppress(*FAULTS):  # Python runs it then
        found = by_compiled_code(programs, model.recording, SENTENCES)
        try:
            wanted = by_python(model.recording, SENTENCES)
        except FAULTS as fault:
            pytest.fail(f"Python meets {fault!r}")
        assert found == wanted


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
    return runtime.compute_remainder(a, b)


@pytest.mark.parametrize("text", COMPUTED)
def test_whole_numbers_are_pythons_or_an_error(text: str) -> None:
    model = model_of(write_source(f"v = p.unary_a(v, label=({text}) % 1000003)"))
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
            check_logs(programs, model.recording, SENTENCES[:1])
        else:
            with pytest.raises((OverflowError, ZeroDivisionError)):
                by_compiled_code(programs, model.recording, SENTENCES[:1])

    check()
