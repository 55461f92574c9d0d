"""Compiled programs that wait record the same log entries as Python's generators.

They compute and raise the same as in Python, or Python runs them.
"""

from __future__ import annotations

import itertools
import math
import re
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.errors import CompileError
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.compiling import runtime
from dynbatch.harness.programs.compiling.writer import translate_program as translate
from dynbatch.harness.programs.log import generate_call_text
from dynbatch.harness.programs.model import ProgramModel, make_recording
from dynbatch.harness.programs.recording import FAULTS
from tests.support.instances import build
from tests.support.processes import run_python
from tests.support.program_models import DECIDED, SENTENCES, SIZES
from tests.support.run_programs import by_compiled_code, by_python, check_logs, translated
from tests.support.scripted_programs import (
    ALONE,
    CALLS,
    LOOPS,
    OF_PROGRAM,
    TOGETHER,
    model_of,
    sources,
    write_source,
)

OPTIONS = [RecordingOptions(*both) for both in itertools.product((True, False), repeat=2)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_compiled_models_record_the_same_as_python(
    model: ProgramModel, options: RecordingOptions
) -> None:
    """Later mini-batches fit in the memory of the first one, and allocate none."""
    recording = make_recording(model, options)
    programs = translated(model)
    n_grown = set[int]()
    for instances in (SENTENCES, SENTENCES[:1], SENTENCES[::-1], [], SENTENCES[:2]):
        check_logs(programs, recording, instances)
        n_grown.add(programs.n_grown)
    assert len(n_grown) == 1
    assert 0 not in n_grown


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sources(), st.integers(0, 5), st.integers(1, 4))
def test_compiled_random_programs_record_the_same_as_python(source: str, seed: int, n: int) -> None:
    model, instances = model_of(source, seed), SENTENCES[:n]
    check_logs(translated(model, as_written=True), model.recording, instances)


def test_a_program_of_everything_is_compiled() -> None:
    """Types that the compiler infers; the source text does not show them."""
    of_all = [*CALLS, *OF_PROGRAM, *ALONE, *TOGETHER]
    loops = [f"{loop}\n    v = p.unary_a(v)" for loop in LOOPS]
    body = "\n".join(
        text.replace("{n}", "3").replace("{at}", str(place))
        for place, text in enumerate(["a = b = v", *of_all, *loops, *of_all[:6]])
    )
    model = model_of(write_source(body))
    check_logs(translated(model), model.recording, SENTENCES)


TEXT = """
from dynbatch.harness.programs.log import generate_call_text
from dynbatch.harness.programs.compiling.writer import translate_program
from tests.support.program_models import DECIDED
for model in DECIDED:
    calls = generate_call_text(model.recording.shapes, model.recording.pulls)
    print(translate_program(model.program, calls).text)
"""


def test_the_text_is_the_same_in_every_process() -> None:
    """The text is the cache key of the machine code."""
    assert len({run_python("-c", TEXT, PYTHONHASHSEED=seed) for seed in ("1", "2")}) == 1


def test_options_of_a_model_are_no_part_of_the_text() -> None:
    one = build("drnn", SIZES)
    other = build("drnn", SIZES, p_child=0.25, generations=5, siblings=2, seed=9)
    calls = generate_call_text(one.recording.shapes, one.recording.pulls)
    texts = {translate(model.program, calls).text for model in (one, other)}
    assert len(texts) == 1
    check_logs(translated(other), other.recording, SENTENCES)


def test_a_number_of_the_model_that_is_of_another_kind_now_is_a_fault() -> None:
    model = model_of(write_source("v = p.unary_a(v, label=int(self.ratio * 2))"))
    model.ratio = 1  # type: ignore[attr-defined]
    programs = translated(model)
    by_compiled_code(programs, model.recording, SENTENCES)
    model.ratio = 0.5  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="ratio of scripted was of"):
        by_compiled_code(programs, model.recording, SENTENCES)


def test_log_has_room_for_functions_inlined_many_times() -> None:
    """Concatenated blocks need more space in the log than any single one."""
    model = model_of(write_source("\n".join(["v = self._twice(p, v)"] * 60)))
    check_logs(translated(model), model.recording, SENTENCES[:1])


REFUSED = {
    "with open('x'): pass": "With is not supported",
    "v = p.nothing(v)": "calls nothing, which is not a block",
    "v = p.binary(v)": "calls binary with 1 operands",
    "v = p.leaf()": "calls leaf with the wrong external numbers",
    "yield p.stage()": "yields an unsupported value",
    "yield p": "yields an unsupported value",
    "a = yield p.fork(self._picked(1, 2))": "forks a value that is not a generator",
    "a = self._walk(p, v, 0, [])": "calls _walk, which waits; use `yield from`",
    "a = {1: v}\na = 0.5": "assigns values of several types to a name: a",
    "if i == 0:\n    late = v\nv = late": "reads late, which is not set on every path",
    "for k in range(0): last = k\nv = p.unary_a(last)": "reads last, which is not set",
    "v = max(words)": "calls an unsupported function: max(words)",
    "x = yield p.chance(of=v)": "has keyword arguments: p.chance(of=v)",
    "v = p.unary_a(v, label=sentence.words[0] + 1)": "computes with a 32-bit number",
    "i = i << 2": "has an unsupported operator: LShift",
    "for one in reversed(read): pass": "calls an unsupported function: reversed",
    "i = sentence.nothing": "reads nothing, which is not an array",
    "i = self.shapes": "which is not a number",
    "if read:\n    v = p.unary_a(v)": "cannot be a condition",
    "a, b = p.concurrent(lambda: v, lambda: v)": "runs branches by p.concurrent",
    "read = [one for one in read if one]": "has a condition in a list",
    "p.chance(v, 1)": "calls chance, which is not a block",
    "a = yield p.fork(self._branch(p, v, 0, read=[]))": "has keyword arguments",
}


@pytest.mark.parametrize("text", REFUSED)
def test_untranslated_construct_is_named_with_its_line(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        translated(model_of(write_source(text)))
    assert REFUSED[text] in str(caught.value)
    assert re.match(r"<written program \d+>:[345] ", str(caught.value)), caught.value


def test_instance_of_unknown_class_is_reported() -> None:
    source = write_source("a = v").replace("sentence: Chain", "sentence: 'Missing'")
    with pytest.raises(CompileError, match=r":1 lacks the class of sentence: write"):
        translated(model_of(source))


def test_a_program_that_waits_for_nothing_is_not_translated() -> None:
    with pytest.raises(CompileError, match="waits for nothing"):
        translated(build("birnn", SIZES))


# --- meanings ---

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
    "c = [1, 2, 3]\nd = c\nc *= 2\nv = p.unary_a(v, label=len(d) % 4)",
    "x = 9007199254740993 + i\nif x > 9007199254740992.0:\n    v = p.unary_a(v)",
    "x = 9007199254740992.0\nif x < 9007199254740993:\n    v = p.unary_a(v)",
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
    try:
        found = by_compiled_code(programs, model.recording, SENTENCES)
    except FAULTS:  # Python runs it then
        return
    assert found == by_python(model.recording, SENTENCES)


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
