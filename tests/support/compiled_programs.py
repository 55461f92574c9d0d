"""Logs of programs, by Python's generators and by translations of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

from harness.compiler.object_code import load_ir
from harness.programs.compiling import programs
from harness.programs.compiling.programs import CompiledPrograms
from harness.programs.compiling.writer import translated as translate
from harness.programs.fibers import Fibers
from harness.programs.log import call_text
from harness.programs.model import ProgramModel
from harness.programs.recording import Decisions, Recording, outputs_of


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
    recorder = recording.recorder(len(instances))
    rounds = Rounds(recording, instances, recorder.log)
    results = Fibers(recorder, rounds).run(recording.program, instances)
    return rounds.seen, outputs_of(results, recorder.n).tolist()


def by_compiled_code(
    compiled: CompiledPrograms, recording: Recording, instances: Sequence[Any]
) -> tuple[list[list[int]], list[int]]:
    """The same, live."""
    seen, has_ended = list[list[int]](), False
    compiled.begin(instances, recording.drawn(instances), recording.options, (0, 0))
    while not has_ended:
        has_ended = compiled.go_on()
        seen.append(compiled.log.tolist())
        compiled.clear()
        compiled.next_round()
    return seen, compiled.outputs().tolist()


def translated(model: ProgramModel, *, as_written: bool = False) -> CompiledPrograms:
    """as_written: whether LLVM's passes are left out, which take most of the time."""
    calls = call_text(model.recording.shapes, model.recording.pulls)
    with patch.object(programs, "load_ir", partial(load_ir, as_written=as_written)):
        return CompiledPrograms(translate(model.program, calls), model)
