"""Programs that fail are reported in one line, which names the program's line.

If a compiled program fails, Python runs it, and reports the line or records the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.errors import CompileError, ConfigError, ProgramError
from dynbatch.harness.programs import fibers, recorder
from dynbatch.harness.programs.compiling import programs as compiled_programs
from dynbatch.harness.programs.model import describe_program_execution
from dynbatch.harness.programs.recording import Recording
from dynbatch.harness.programs.writer import CallWriter
from dynbatch.harness.values.graph import MiniBatch
from tests.support.bad_programs import BAD, ONE, Given
from tests.support.engine_runs import run
from tests.support.program_models import SENTENCES
from tests.support.run_programs import live_adapter
from tests.support.scripted_programs import ScriptedModel, model_of, write_source

Patch = pytest.MonkeyPatch
N, LINE = 500, r"<written program \d+>:"
WRONG = {  # body of the program, and the reported error, which starts with the line
    "v = p.project(p.unary_a(v))": "3 calls project with other shapes than traced: operand 0 lacks",
    "v = p.unary_a(i - 1)": "3 calls unary_a with operand 0 -1; expected the result",
    "v = p.binary(v, read.pop() if i else 99)": "3 calls binary with operand 1 99; expected",
    "i += int((yield p.chance(v + 5, 1)))": "3 waits for a value of 5, which no block computed",
    "while True:\n    v = p.unary_b(v)": "4 calls unary_b after 1500 blocks; .* end its loop",
    "while True:\n    read += p.chain(p.unary_b, v, 1000000)": "4 calls unary_b after 1500 blocks",
    "yield p.fork(self._endless(p, v))": "_endless forks endlessly: expected at most 50 fibers",
    "p.ghosts(i - 1)": "3 expected at least 0 ghosts, got -1",
    "v = p.leaf(word=1099511627776)": "3 calls leaf with word=1099511627776; expected",
    "read += p.chain(p.unary_b, v, 3, label=[1])": "3 chain: expected 3 numbers label, one per",
    "v = read.pop()": "3 raises IndexError: pop from empty list",
    "v = p.unary_a(v, label=3 // (i - i))": "3 raises ZeroDivisionError: ",
    "return [7]": "a program returns a value that no block computed",
}
TAIL = """

def _endless(self, p, v):
    yield p.fork(self._endless(p, v), self._endless(p, v))
"""


def written(body: str) -> ScriptedModel:
    return model_of(write_source(body) + TAIL)


def quick_of(model: ScriptedModel) -> Recording:
    model.recording.translate()
    return model.recording


def graphs(one: MiniBatch) -> list[Any]:
    return [one.graph.types.tolist(), one.graph.args.tolist(), one.outputs.tolist()]


RAISED = {  # errors of Python's own
    "if p.chance(v, 1) < 0.5:\n    v = p.unary_a(v)": (
        "3 raises TypeError: .*; yield the results of chance"
    ),
    "read = p.chain(p.unary_a, v, 2) + [v]": "3 raises TypeError: ",
    "v = nothing": "3 raises NameError: ",
    "assert i == 1": "3 raises AssertionError: ",
    "raise OSError('odd')": "3 raises OSError: odd",
    "i = next(iter(read))": "3 raises RuntimeError: generator raised StopIteration",
    "v = p.leaf(word=int(sentence.words[99]))": "3 raises IndexError: index 99 is out of",
}
MISUSED = {  # bodies that Python runs from the start
    "yield p.chance(None, 1)": "3 waits for a value of None, which no block computed",
    "p.fork(self._branch(p, v, 0, read))": "3 forks branches without waiting; yield it",
    "p.value(v, 'h')": "3 requests a value without waiting; yield it",
    "yield v": "a program yields a int; yield each result of fork, value, chance or stage",
    "fork = p.fork(self._branch(p, v, 0, read))\nyield fork\nyield fork": (
        "a program yields a Fork; yield each .* once"
    ),
    "yield p.fork(v)": "3 forks a int; expected a generator",
    "p.concurrent(lambda: self._branch(p, v, 0, read))": (
        r"8 _branch waits for values, but runs in concurrent; yield p\.fork"
    ),
    "v = p.binary(v)": "3 calls binary with 1 operands, but it was traced with 2",
    "v = p.unary_a(None)": "3 calls unary_a with operand 0 None; expected the result",
    "read += p.chain(p.unary_a, None, 2)": "3 calls unary_a with operand 0 None; expected the",
    "v = p.leaf()": "3 calls leaf with the numbers none; it needs word and accepts word, label",
    "v = p.leaf(word=0, letter=1)": "3 calls leaf with the numbers letter, word; it needs word and",
    "v = p.trinary(v)": "3 calls an unknown block trinary; choose one of binary, leaf",
    "return": "a program returns a value that no block computed; return a result",
    "return v, v": "a program returns a value that no block computed; return a result",
    "return p.chain(p.unary_a, v, 2)": "a program returns a value that no block computed; return",
}


def pattern(words: str) -> str:
    """Return the pattern of an error, whose number of a line follows the name of the file."""
    return f"^{LINE if words[0].isdigit() else ''}{words}"


@pytest.mark.parametrize(("body", "words"), (WRONG | RAISED).items())
def test_program_error_has_its_line(body: str, words: str, monkeypatch: Patch) -> None:
    for module in (recorder, compiled_programs):
        monkeypatch.setattr(module, "MAX_VERTICES", N)
    for module in (fibers, compiled_programs):
        monkeypatch.setattr(module, "MAX_FIBERS", 50)
    model = written(body)
    quick = quick_of(model)
    assert body in RAISED or quick.programs is not None, quick.run_by
    for _ in range(2):
        with pytest.raises(ProgramError, match=pattern(words)):
            model.mini_batch(SENTENCES[:3])
    assert body in RAISED or quick.run_by == "compiled code"  # Python fails, too


@pytest.mark.parametrize(("body", "words"), MISUSED.items())
def test_misused_writer_is_reported_with_its_line(body: str, words: str) -> None:
    model = written(body)
    assert quick_of(model).programs is None
    with pytest.raises(ProgramError, match=pattern(words)) as reported:
        model.mini_batch(SENTENCES[:1])
    assert "\n" not in str(reported.value)


LONG = "i = 3\nfor k in range(60):\n    i *= 3\nv = p.unary_a(v, label=i % 4)"


def test_large_integers_fall_back_to_python_with_a_note() -> None:
    model, plain = written(LONG), written(LONG)
    quick = quick_of(model)
    assert quick.programs is not None
    for _ in range(2):
        assert graphs(model.mini_batch(SENTENCES)) == graphs(plain.mini_batch(SENTENCES))
    assert quick.programs is None
    reported = "Python, since compiled code met OverflowError: a number of more than 64 bits"
    assert describe_program_execution(model) == {"program_execution": reported}


def test_uncompilable_program_falls_back_to_python_with_a_note(monkeypatch: Patch) -> None:
    def refuse(*_: Any) -> int:
        raise CompileError("no such thing")

    model, plain = written("v = p.unary_a(v)"), written("v = p.unary_a(v)")
    monkeypatch.setattr(compiled_programs, "load_ir", refuse)
    quick = quick_of(model)
    assert graphs(model.mini_batch(SENTENCES)) == graphs(plain.mini_batch(SENTENCES))
    assert quick.run_by == "Python, since no such thing"


def test_lack_of_memory_passes(monkeypatch: Patch) -> None:
    """Python runs that one mini-batch, compiled code the next."""

    def lack(*_: Any) -> int:
        raise MemoryError

    model, plain = written("v = p.unary_a(v)"), written("v = p.unary_a(v)")
    quick = quick_of(model)
    with monkeypatch.context() as patch:
        patch.setattr(quick.programs, "_go_on", lack)
        assert graphs(model.mini_batch(SENTENCES)) == graphs(plain.mini_batch(SENTENCES))
    assert quick.run_by == "compiled code"
    assert graphs(model.mini_batch(SENTENCES)) == graphs(plain.mini_batch(SENTENCES))


def test_live_segments_go_on_by_python_too() -> None:
    """The results are those of programs that Python ran from the start."""
    found = []
    for programs in ("compiled", "python"):
        adapter = live_adapter(written(LONG), programs=programs)
        for _ in range(2):
            result = run(adapter, SENTENCES)
        found.append(result.outputs)
        by = adapter.effective_options()["program_execution"]
        because = {"compiled": "compiled code met OverflowError", "python": "it was asked to"}
        assert by.startswith(f"Python, since {because[programs]}")
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("program", "line"), BAD, ids=lambda one: getattr(one, "__name__", ""))
def test_invalid_program_is_reported_with_its_line(
    program: Callable[[CallWriter], Any], line: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(fibers, "DEEPEST_CALLS", 500)
    with pytest.raises(ProgramError, match=line) as reported:
        Given(program).mini_batch(ONE)
    assert "\n" not in str(reported.value)


def test_block_named_like_a_writer_method_is_reported() -> None:
    """Names that are allowed for blocks must not be attributes of the recorder."""

    class Named(Given):
        def __init__(self, name: str) -> None:
            super().__init__(lambda p: getattr(p, name)(word=0))
            setattr(self, name, self.leaf)
            self.vertex_types = (name, *self.vertex_types[1:])

    for name in ("chance", "stage", "note", "n", "cut", "rules"):
        with pytest.raises(ConfigError, match=rf"vertex type {name} cannot be a block: p\.{name} "):
            Named(name).mini_batch(ONE)
    for name in ("types", "args", "counter", "base", "floor", "fiber"):
        assert Named(name).mini_batch(ONE).graph.types.tolist() == [1]
