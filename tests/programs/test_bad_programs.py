"""A program that breaks a rule is reported in one line, which names the program's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dynbatch.harness.contracts.model import draw_initial_weights
from dynbatch.harness.errors import ConfigError, ProgramError
from dynbatch.harness.interpreter import interpret
from dynbatch.harness.programs import fibers, recorder
from dynbatch.harness.programs.writer import CallWriter
from tests.support.bad_programs import BAD, HERE, ONE, Given, a_number


@pytest.mark.parametrize(("program", "line"), BAD, ids=lambda one: getattr(one, "__name__", ""))
def test_invalid_program_is_reported_with_its_line(
    program: Callable[[CallWriter], Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_VERTICES", 90)
    monkeypatch.setattr(fibers, "MAX_FIBERS", 50)
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


def test_a_recording_beforehand_cannot_wait_for_numbers() -> None:
    with pytest.raises(ProgramError, match=rf"{HERE} waits for a computed number"):
        Given(a_number).mini_batch(ONE)


def test_the_interpreter_knows_numbers() -> None:
    model = Given(a_number)
    weights = draw_initial_weights(model, 3)
    truth = interpret(model, weights, ONE)
    word = int(weights["words"][0, 1] > 0)
    states = [Given(lambda p, w=w: p.leaf(word=w, label=0)) for w in range(2)]
    expected = interpret(states[word], weights, ONE)
    assert truth.loss == expected.loss
    assert interpret(states[1 - word], weights, ONE).loss != expected.loss
