"""Logs of programs, by Python's generators and by translations of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.programs.compiling.programs import CompiledPrograms
from harness.programs.compiling.translation import Translator
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

    def quietly(*arrays: Any) -> int:
        with np.errstate(over="ignore"):  # numbers are mixed modulo 2**64
            return int(go_on.function(*arrays))

    return quietly
