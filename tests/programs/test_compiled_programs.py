"""Programs that wait, translated: they record what Python's generators do, entry by entry."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.models.birnn import BiRNN
from harness.models.drnn import DRNN
from harness.programs.call_text import call_text
from harness.programs.compiling.programs import CompiledPrograms
from harness.programs.compiling.translation import Translator
from harness.programs.compiling.values import NotTranslated
from harness.programs.compiling.written import written
from harness.programs.fibers import Fibers
from harness.programs.logged import LoggedRecorder
from harness.programs.model import ProgramModel, recording_of
from harness.programs.quick import QuickRecorders
from harness.programs.recorder import RecordingOptions
from harness.programs.recording import FAULTS, Decisions, Recording, outputs_of
from tests.support.live_programs import Decides
from tests.support.program_models import DECIDED, SENTENCES, SIZES
from tests.support.scripted_programs import Scripted
from tests.support.written_programs import (
    ALONE,
    CALLS,
    HEAD,
    LOOPS,
    OF_PROGRAM,
    TOGETHER,
    indented,
    model_of,
    sources,
)

OPTIONS = [RecordingOptions(*both) for both in itertools.product((True, False), repeat=2)]


class Rounds(Decisions):
    """Python's answers, and what was in the log whenever a round ended."""

    def __init__(self, recording: Recording, instances: Sequence[Any], log: list[int]) -> None:
        super().__init__(recording.drawn(instances))
        self.log, self.seen = log, list[list[int]]()

    def end_round(self) -> None:
        self.seen.append(list(self.log))
        self.log.clear()


def by_python(recording: Recording, instances: Sequence[Any]) -> tuple[list[list[int]], list[int]]:
    """The log of every round, and what programs return."""
    recorder = QuickRecorders(recording)(recording.rules, len(instances))
    assert isinstance(recorder, LoggedRecorder)
    rounds = Rounds(recording, instances, recorder._log)
    results = Fibers(recorder, rounds).run(recording.program, instances)
    return rounds.seen, outputs_of(results, recorder.n).tolist()


def by_compiled_code(
    programs: CompiledPrograms, recording: Recording, instances: Sequence[Any]
) -> tuple[list[list[int]], list[int]]:
    """The same, live: numbers that are drawn are never asked for."""
    seen, has_ended = list[list[int]](), False
    programs.begin(instances, recording.drawn(instances), recording.options, never)
    while not has_ended:
        has_ended = programs.go_on()
        seen.append(programs.log.tolist())
        programs.clear()
        programs.next_round()
    return seen, programs.outputs().tolist()


def never(state: str, vertices: Sequence[int], columns: Sequence[int]) -> Sequence[float]:
    raise AssertionError(f"{state} is asked for")


def translated(model: ProgramModel, *, interpreted: bool = False) -> CompiledPrograms:
    recording = model.recording
    calls = call_text(recording.shapes, recording.pulls)
    programs = CompiledPrograms(Translator(model, calls).translate(model.program), model)
    if interpreted:
        programs._go_on = interpreted_text(programs._go_on)
    return programs


def interpreted_text(go_on: Any) -> Any:
    """The same text, run by Python, and all that it calls of ours."""
    module = sys.modules[go_on.__module__]
    for name, found in list(vars(module).items()):
        if hasattr(found, "py_func"):
            setattr(module, name, found.py_func)
    run = go_on.py_func

    def quietly(*arrays: Any) -> int:
        with np.errstate(over="ignore"):  # numbers are mixed modulo 2**64
            return int(run(*arrays))

    return quietly


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_models_record_what_python_does(model: ProgramModel, options: RecordingOptions) -> None:
    recording = recording_of(model, options)
    programs = translated(model)
    for instances in (SENTENCES, SENTENCES[:1], SENTENCES[::-1], []):
        assert by_compiled_code(programs, recording, instances) == by_python(recording, instances)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sources(), st.integers(0, 5), st.integers(1, 4))
def test_random_programs_record_what_python_does(source: str, seed: int, n: int) -> None:
    model, instances = model_of(source, seed), SENTENCES[:n]
    programs = translated(model, interpreted=True)
    found = by_compiled_code(programs, model.recording, instances)
    assert found == by_python(model.recording, instances)


def test_a_program_of_everything_is_compiled() -> None:
    """What numba makes of the types, of which a text that Python runs says nothing."""
    of_all = [*CALLS, *OF_PROGRAM, *ALONE, *TOGETHER]
    loops = [f"{loop}\n    v = p.unary_a(v)" for loop in LOOPS]
    body = "\n".join(
        line.replace("{n}", "3").replace("{at}", str(place))
        for place, text in enumerate(["a = b = v", *of_all, *loops, *of_all[:6]])
        for line in indented(text, 1)
    )
    model = model_of(HEAD.format(body=body, branch="    a = v", walk="    a = v"))
    found = by_compiled_code(translated(model), model.recording, SENTENCES)
    assert found == by_python(model.recording, SENTENCES)


@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_nothing_is_made_anew_for_a_mini_batch_that_is_no_larger(model: ProgramModel) -> None:
    programs, recording = translated(model), model.recording
    by_compiled_code(programs, recording, SENTENCES)
    before = programs.n_grown
    assert before > 0
    for instances in (SENTENCES, SENTENCES[:2], SENTENCES[::-1]):
        by_compiled_code(programs, recording, instances)
    assert programs.n_grown == before


TEXT = """
from harness.models.birnn import BiRNN
from harness.models.drnn import DRNN
from harness.programs.call_text import call_text
from harness.programs.compiling.translation import Translator
from harness.programs.compiling.written import written
from tests.support.program_models import DECIDED
for model in DECIDED:
    calls = call_text(model.recording.shapes, model.recording.pulls)
    print(written(Translator(model, calls).translate(model.program)).text)
"""


def test_the_text_is_the_same_in_every_process() -> None:
    """Machine code is kept under it."""
    texts = {
        subprocess.run(
            [sys.executable, "-c", TEXT],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


def test_options_of_a_model_are_no_part_of_the_text() -> None:
    one, other = DRNN(SIZES), DRNN(SIZES, p_child=0.25, generations=5, siblings=2, seed=9)
    calls = call_text(one.recording.shapes, one.recording.pulls)
    texts = {
        written(Translator(model, calls).translate(model.program)).text for model in (one, other)
    }
    assert len(texts) == 1
    found = by_compiled_code(translated(other), other.recording, SENTENCES)
    assert found == by_python(other.recording, SENTENCES)


# What a translation could get wrong without a word. Python is asked what it means, and records
# it where it is not translated.
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
    "for MOST_DEPTH in range(2):\n    pass\nv = p.unary_a(v, label=MOST_DEPTH)",
    "v = p.unary_a(v, label=MOST_DEPTH)",
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
    "MOST_DEPTH": 0,
    "depth": 1,
    "EVEN": np.array([0, 2]),
    "ODD": np.array([1, 3]),
    "SHIFT": IntEnum("Action", {"SHIFT": 2})(2),
    "LAST": -1,
    "INFINITE": math.inf,
}


@pytest.mark.parametrize("text", TRAPS)
def test_what_python_means_is_recorded_or_left_to_it(text: str) -> None:
    source = HEAD.format(body="\n".join(indented(text, 1)), branch="    a = v", walk="    a = v")
    model = model_of(source + OTHERS, **GLOBALS)
    model.ratio = 2.5  # type: ignore[attr-defined]
    quick = QuickRecorders(model.recording)
    if quick.programs is None:
        assert re.match(r"Python, since <written program \d+>:\d+ ", quick.run_by), quick.run_by
        return
    programs = translated(model, interpreted=True)
    with suppress(*FAULTS):  # then Python does it
        found = by_compiled_code(programs, model.recording, SENTENCES)
        try:
            wanted = by_python(model.recording, SENTENCES)
        except FAULTS as fault:
            pytest.fail(f"Python meets {fault!r}")
        assert found == wanted


def test_a_number_of_the_model_that_is_of_another_kind_now_is_a_fault() -> None:
    body = "    v = p.unary_a(v, label=int(self.ratio * 2))"
    model = model_of(HEAD.format(body=body, branch="    a = v", walk="    a = v"))
    model.ratio = 1  # type: ignore[attr-defined]
    programs = translated(model, interpreted=True)
    by_compiled_code(programs, model.recording, SENTENCES)
    model.ratio = 0.5  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="ratio of scripted was of"):
        by_compiled_code(programs, model.recording, SENTENCES)


def test_there_is_room_for_functions_that_are_written_many_times() -> None:
    """Blocks that are joined take more of the log than any of them alone."""
    body = "\n".join(["    v = self._twice(p, v)"] * 60)
    model = model_of(HEAD.format(body=body, branch="    a = v", walk="    a = v"))
    programs = translated(model, interpreted=True)
    found = by_compiled_code(programs, model.recording, SENTENCES[:1])
    assert found == by_python(model.recording, SENTENCES[:1])


REFUSED = {
    "with open('x'): pass": "has a statement that is not translated",
    "v = p.nothing(v)": "calls the block nothing, which is none",
    "v = p.binary(v)": "calls binary with 1 operands",
    "v = p.leaf()": "calls leaf with other numbers than it needs",
    "v = p.leaf(word=0, other=1)": "calls leaf with other numbers than it needs",
    "yield p.stage()": "yields what is not translated",
    "yield p": "yields what is not translated",
    "a = yield p.fork(self._picked(1, 2))": "forks what is no generator",
    "a = self._walk(p, v, 0, [])": "calls _walk, which waits; use `yield from`",
    "a = {1: v}\na = 0.5": "gives a name values of several kinds: a",
    "if i == 0:\n    late = v\nv = late": "reads late, which is not set on every way there",
    "for k in range(0): last = k\nv = p.unary_a(last)": "reads last, which is not set",
    "v = max(words)": "takes max of something else than two numbers, or more",
    "x = yield p.chance(of=v)": "gives operands by name: p.chance(of=v)",
    "v = p.unary_a(v, label=sentence.words[0] + 1)": "computes with a number of 32 bits",
    "i = i ** 2": "has an operator that is not translated: i ** 2",
    "for one in reversed(read): pass": "calls what is not translated: reversed",
    "i = sentence.nothing": "reads nothing, which is neither a number nor an array",
    "i = self.shapes": "which is no number",
    "p.chance(v, 1)": "calls the block chance, which is none",
    "a = yield p.fork(self._branch(p, v, 0, read=[]))": "gives operands by name",
    "import math": "has a statement that is not translated",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_translated_is_told_with_its_line(text: str) -> None:
    body = "\n".join(indented(text, 1))
    model = model_of(HEAD.format(body=body, branch="    a = v", walk="    a = v"))
    with pytest.raises(NotTranslated) as caught:
        translated(model)
    assert REFUSED[text] in str(caught.value)
    assert re.match(r"<written program \d+>:[345] ", str(caught.value)), caught.value


def test_an_instance_whose_class_is_not_known_is_told() -> None:
    source = HEAD.format(body="    a = v", branch="    a = v", walk="    a = v")
    with pytest.raises(NotTranslated, match=r":1 lacks the class of sentence: write"):
        translated(model_of(source.replace("sentence: Chain", "sentence: 'Missing'")))


def test_a_program_that_waits_for_nothing_is_not_translated() -> None:
    with pytest.raises(NotTranslated, match="waits for nothing"):
        translated(BiRNN(SIZES))


def test_numbers_that_are_computed_are_read_where_they_are() -> None:
    model, asked = Decides(), list[tuple[str, list[int], list[int]]]()

    def numbers(state: str, vertices: Sequence[int], columns: Sequence[int]) -> Sequence[float]:
        asked.append((state, list(vertices), list(columns)))
        return [0.05 if column % 2 else 1.0 for column in columns]

    instances = [Scripted((), number) for number in range(3)]
    programs, recording = translated(model), model.recording
    programs.begin(instances, recording.drawn(instances), recording.options, numbers)
    assert not programs.go_on()
    assert asked == []  # all wait for what is not there
    programs.next_round()
    assert asked == [("h", [1, 3, 5], [0, 0, 0])]  # the last instance goes first
    assert not programs.go_on()
    # Those of a vertex that is there are asked for one by one, at once.
    assert asked[1:] == [("h", [vertex], [1]) for vertex in (1, 3, 5)]
