"""Compiled programs that wait record the same log entries as Python's generators."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynbatch.harness.errors import CompileError
from dynbatch.harness.models.birnn import BiRNN
from dynbatch.harness.models.drnn import DRNN
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.compiling.writer import translate_program as translate
from dynbatch.harness.programs.log import generate_call_text
from dynbatch.harness.programs.model import ProgramModel, make_recording
from tests.support.processes import run_python
from tests.support.program_models import DECIDED, SENTENCES, SIZES
from tests.support.run_programs import by_compiled_code, check_logs, translated
from tests.support.written_programs import (
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
    recording = make_recording(model, options)
    programs = translated(model)
    for instances in (SENTENCES, SENTENCES[:1], SENTENCES[::-1], []):
        check_logs(programs, recording, instances)


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


@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_no_allocation_for_a_mini_batch_that_fits(model: ProgramModel) -> None:
    programs, recording = translated(model), model.recording
    by_compiled_code(programs, recording, SENTENCES)
    before = programs.n_grown
    assert before > 0
    for instances in (SENTENCES, SENTENCES[:2], SENTENCES[::-1]):
        by_compiled_code(programs, recording, instances)
    assert programs.n_grown == before


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
    one, other = DRNN(SIZES), DRNN(SIZES, p_child=0.25, generations=5, siblings=2, seed=9)
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
        translated(BiRNN(SIZES))
