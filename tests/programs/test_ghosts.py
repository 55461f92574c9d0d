"""Ghost operators that the analysis of branches inserts: their numbers, depths and results."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.compiler.registry import find_definition
from dynbatch.harness.contracts.model import draw_initial_weights
from dynbatch.harness.models.stack_rnn import StackRNN
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.ghosts import BranchAnalysis
from dynbatch.harness.programs.model import ProgramModel, make_recorded_model, make_recording
from dynbatch.harness.reference import run_reference
from tests.support.engine_runs import run
from tests.support.interpreter import interpret
from tests.support.program_models import DECIDED, SENTENCES
from tests.support.run_programs import SEED, check_logs, check_result, live_adapter, translated
from tests.support.scripted_programs import model_of

HEAD = """\
def program(self, p, sentence: Chain):
    v, i, read = p.leaf(word=0), len(sentence.words), []
    v = p.unary_a(v, label=1)
    number = yield p.chance(v, 1)
    c, d = number < 0.5, number * 64 % 1.0 < 0.5
{body}
    return [p.unary_a(v, label=2)]
"""
OTHERS = """

def _twice(self, p, v):
    return p.unary_b(p.unary_b(v))


def _uneven(self, p, v, c):
    if c:
        v = p.unary_a(v)
    return v


def _thrice(self, p, v, c):
    for _ in range(3):
        v = p.unary_a(v)
    return v


def outside(p, v, c):
    v = p.unary_b(v)
    if c:
        v = p.unary_b(v)
        v = p.unary_b(v)
    return v
"""
PLAIN = RecordingOptions(hoisting=False)
# Body, and the sorted numbers of ghost operators of the program.
EQUALIZED = {
    "if c:\n    v = p.unary_a(v)": [1],
    "if c:\n    i += 1\nelse:\n    v = p.unary_a(p.unary_b(v))": [2],
    "if c:\n    v = p.unary_a(v)\nelse:\n    v = p.unary_b(v)": [],
    "if c:\n    v = p.unary_a(v)\nelse:\n    p.ghosts(1)": [],
    "if c:\n    v = p.unary_a(v)\nelse:\n    p.ghosts(3)": [2],
    "if c:\n    i = 1\nelif d:\n    v = p.unary_a(v)\nelse:\n    v = p.unary_a(p.unary_b(v))": [
        1,
        2,
    ],
    "if c:\n    if d:\n        v = p.unary_a(v)\n    v = p.unary_b(v)": [1, 2],
    "if c:\n    v = p.chain(p.unary_a, v, 3)[-1]\nelse:\n    v = p.unary_b(v)": [2],
    "if c:\n    a, b = p.concurrent(lambda: p.unary_a(v), lambda: p.unary_a(p.unary_b(v)))\n"
    "    v = p.binary(a, b)": [3],
    "if c:\n    v = self._twice(p, v)\nelse:\n    v = p.unary_b(v)": [1],
    "v = self._uneven(p, v, c)": [1],
    "if d:\n    v = self._uneven(p, v, c)": [1, 1],
    "v = outside(p, v, c)": [2],
    "if c:\n    read.append(v)\n    v = p.many(*read, word=1)": [1],
    "for k in range(2):\n    if c:\n        v = p.unary_a(v)": [1],
    "v = p.unary_a(v) if c else p.unary_b(v)\nif d:\n    v = p.unary_b(v)": [1],
}
UNEVEN = [body for body, n in EQUALIZED.items() if n and "concurrent" not in body]
LEFT_ALONE = (
    "if c:\n    return [p.unary_b(v)]",
    "while True:\n    if c:\n        break\n    v = p.unary_a(v)\n    c = True",
    "if c:\n    for k in range(i):\n        v = p.unary_a(v)",
    "if c:\n    v = p.chain(p.unary_a, v, i)[-1]",
    "if c:\n    v = p.unary_a(v)\n    number = yield p.chance(v, 2)",
    "if c:\n    p.stage()\n    v = p.unary_a(v)",
    "if c:\n    v = self._thrice(p, v, c)",
    "if c:\n    read += p.map(lambda a: p.unary_a(a), [v, v])",
    "if c:\n    p.ghosts(i)",
    "if c:\n    v = p.unary_a(v) if d else v",
    "block = p.unary_a\nif c:\n    v = block(v)",
    "if c:\n    v = getattr(p, 'unary_a')(v)",
    "if c:\n    v = [p.unary_a(one) for one in [v]][0]",
    "if c:\n    v = self.__class__ and p.unary_a(v)",
    "if c:\n    with self.lock:\n        v = p.unary_a(v)",
    "if c:\n    i += len([k for k in range(3)])\nelse:\n    read.append(i)",
)


def write_model(body: str, seed: int = 0) -> Any:
    """Return a model with this program, whose decisions come from a seed."""
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return model_of(HEAD.format(body=lines) + OTHERS, seed)


def list_ghosts(model: ProgramModel) -> list[int]:
    """Return the sorted numbers of inserted ghost operators."""
    assert make_recording(model, PLAIN).program
    missing = BranchAnalysis(model.program, frozenset(model.recording.shapes)).missing
    return sorted(abs(n) for spots in missing.values() for n in spots.values())


@pytest.mark.parametrize(("body", "numbers"), EQUALIZED.items())
def test_missing_ghosts_of_the_shorter_branch_are_found(body: str, numbers: list[int]) -> None:
    assert list_ghosts(write_model(body)) == numbers


@pytest.mark.parametrize("body", LEFT_ALONE)
def test_branches_of_unknown_length_or_without_a_join_get_none(body: str) -> None:
    model = write_model(body)
    assert list_ghosts(model) == []
    assert model.recording.program == model.program


def find_depths(model: ProgramModel, options: RecordingOptions) -> set[int]:
    """Return the depths of the programs' last blocks."""
    graph_model = make_recorded_model(model, options)
    mini_batch = graph_model.mini_batch(SENTENCES)
    return set(mini_batch.graph.depths[mini_batch.outputs].tolist())


@pytest.mark.parametrize("body", UNEVEN)
def test_all_paths_end_at_the_same_depth(body: str) -> None:
    without = RecordingOptions(ghosts=False, hoisting=False)
    depths, unequal = set[int](), set[int]()
    for seed in range(6):
        model = write_model(body, seed)
        depths |= find_depths(model, PLAIN)
        unequal |= find_depths(model, without)
    assert len(depths) == 1
    assert len(unequal) > 1
    assert depths == {max(unequal)} or "p.ghosts(3)" in body


@pytest.mark.parametrize("body", UNEVEN)
def test_compiled_and_interpreted_programs_agree(body: str) -> None:
    model = write_model(body, seed=4)
    check_logs(translated(model, as_written=True), model.recording, SENTENCES)
    check_result(run(live_adapter(model), SENTENCES), model, SENTENCES)


def test_hoisted_blocks_do_not_count() -> None:
    """A block that reads only leaves is hoisted once its operands are known."""
    body = "if c:\n    v = p.binary(v, p.project(p.leaf(word=i % 5)))\nelse:\n    v = p.unary_a(v)"
    model = write_model(body)
    assert list_ghosts(model) == [2]
    recording = make_recording(model, RecordingOptions())
    recording.mini_batch(SENTENCES)
    assert recording.program == model.program
    assert len(find_depths(model, RecordingOptions())) == 1
    assert len(find_depths(model, PLAIN)) == 1


SHIFT = "    pushed = buffer.pop()\n"


@pytest.mark.parametrize("restart", [True, False])
def test_of_the_shipped_programs_only_the_parser_gets_a_ghost_where_it_shifts(
    restart: bool,
) -> None:
    """It was once written there by hand; composing has one more block than shifting."""
    found, without = {}, RecordingOptions(ghosts=False, restart=restart)
    for model in DECIDED:
        program = make_recording(model, RecordingOptions(restart=restart)).program
        if program != model.program:
            found[model.name] = ast.unparse(find_definition(program.__func__))
        assert make_recording(model, without).program == model.program
    written = ast.unparse(find_definition(StackRNN.program))
    assert found == {"stack_rnn": written.replace(SHIFT, f"{SHIFT}            p.ghosts(1)\n")}


def test_code_in_a_signature_is_not_taken_for_the_function() -> None:
    """A default or an annotation may contain a lambda or a comprehension."""
    signature = "p, v: [k for k in 'ab'], c, n=(lambda k: k + 1)(1), *, m=[k for k in range(3)]"
    text = f"\n\ndef _signed(self, {signature}):\n    if c:\n        v = p.unary_a(v, label=n)\n"
    text += "    return p.unary_b(v, label=m[n])\n"
    source = HEAD.format(body="    v = self._signed(p, v, c)") + text
    model = model_of(source)
    assert list_ghosts(model) == [1]
    weights = draw_initial_weights(model, SEED)
    wanted = interpret(model, weights, SENTENCES)
    found = run_reference(model, weights, SENTENCES, "train")
    np.testing.assert_allclose(found.outputs, wanted.outputs)
    assert found.loss == pytest.approx(wanted.loss)


def test_an_error_names_the_line_of_the_program_as_written() -> None:
    model = write_model("if c:\n    v = p.unary_a(v)\nv = p.binary(v)")
    with pytest.raises(Exception, match=r"written program \d+>:8 .*binary"):
        model.recording.mini_batch(SENTENCES)
