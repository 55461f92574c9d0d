"""Execution of programs: live by an adapter, and their logs by Python and by compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.object_code import load_ir
from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.contracts.system import Result, RunSettings
from dynbatch.harness.models.stack_rnn import StackRNN
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.compiling import programs
from dynbatch.harness.programs.compiling.programs import CompiledPrograms
from dynbatch.harness.programs.compiling.writer import translate_program as translate
from dynbatch.harness.programs.fibers import Fibers
from dynbatch.harness.programs.log import DONE, UNDONE, generate_call_text
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.recording import Decisions, Recording, collect_outputs
from dynbatch.harness.programs.writer import Body, CallWriter
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_core.acrobat import Adapter
from tests.support.interpreter import interpret
from tests.support.scripted_programs import Scripted, ScriptedModel

PLAIN = RecordingOptions()
SEED = 3


def infer_adapter(model: Model, threads: int = 1, **options: Any) -> Adapter:
    """Return a prepared adapter with weights of SEED."""
    adapter = Adapter(RunSettings("infer", "cpu", threads, 1, 0.1, 0, options=options))
    adapter.prepare(model, draw_initial_weights(model, SEED))
    return adapter


def live_adapter(
    model: Model, how: RecordingOptions = PLAIN, threads: int = 1, **options: Any
) -> Adapter:
    """Return a prepared adapter that runs programs instead of using arrays."""
    options = {"execution": "interleaved", "recording": "program"} | options
    options |= {"static_depths": how.hoisting, "program_phases": how.phases}
    options |= {"ghost_operators": how.ghosts, "restart_depths": how.restart}
    return infer_adapter(model, threads, **options)


def check_result(found: Result, model: Model, instances: Sequence[Any]) -> None:
    """Compare outputs and loss with those in float64, by direct execution if there is a program."""
    weights = draw_initial_weights(model, SEED)
    truth = (
        interpret(model, weights, instances)
        if isinstance(model, ProgramModel)
        else run_reference(model, weights, instances, "infer")
    )
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-4, atol=1e-5)
    assert found.loss == pytest.approx(truth.loss, rel=1e-4)


@compiled
def undone(table: int, n_log: int) -> int:
    """Report that nothing of a segment is done; replaces the function that makes a segment."""
    return UNDONE if table + n_log != 0 else DONE


# Replaces `maker` of segments: Python calls compiled code for each.
MADE_BY_PYTHON = property(lambda _: (undone.address, 1))


class Decides(ScriptedModel):
    """Program that continues depending on a number of the state itself."""

    def program(self, p: CallWriter, instance: Scripted) -> Body:
        value, read = p.leaf(word=instance.number % 5), []
        for step in range(6):
            value = p.unary_a(value, label=step % 4)
            read.append(value)
            if (yield p.value(value, "h", step % 3)) < 0.0:
                value = p.binary(value, p.leaf(word=step % 5))
            elif (yield p.value(value, "h", (step + 1) % 3)) > 0.1:
                break
        return read


class OwnArrays(StackRNN):
    """Model that defines its own mini-batch, which has several graph segments."""

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        return self.recording.mini_batch(instances)


class Segments(Decisions):
    """Python's decisions, with the log at the end of each segment."""

    def __init__(self, recording: Recording, instances: Sequence[Any], log: list[int]) -> None:
        super().__init__(recording.draw_decisions(instances))
        self.log, self.seen = log, list[list[int]]()

    def end_segment(self) -> None:
        self.seen.append(list(self.log))
        self.log.clear()


def by_python(recording: Recording, instances: Sequence[Any]) -> tuple[list[list[int]], list[int]]:
    """Return the log of every segment, and the results of the programs, by Python."""
    recorder = recording.make_recorder(len(instances))
    segments = Segments(recording, instances, recorder.log)
    results = Fibers(recorder, segments).run(recording.program, instances)
    return segments.seen, collect_outputs(results, recorder.n).tolist()


def by_compiled_code(
    compiled: CompiledPrograms, recording: Recording, instances: Sequence[Any]
) -> tuple[list[list[int]], list[int]]:
    """Return the log of every segment, and the results of the programs, by compiled code."""
    seen, has_ended = list[list[int]](), False
    nobody = undone.address, 1
    compiled.begin(instances, recording.draw_decisions(instances), recording.options, nobody)
    while not has_ended:
        has_ended = compiled.go_on()
        seen.append(compiled.log.tolist())
        compiled.clear()
        compiled.start_next_segment()
    return seen, compiled.outputs().tolist()


def check_logs(compiled: CompiledPrograms, recording: Recording, instances: Sequence[Any]) -> None:
    """Compare log and results of compiled code with those of Python."""
    found = by_compiled_code(compiled, recording, instances)
    assert found == by_python(recording, instances)


def translated(model: ProgramModel, *, as_written: bool = False) -> CompiledPrograms:
    """Translate the programs; `as_written` skips LLVM's passes, which take most of the time."""
    calls = generate_call_text(model.recording.shapes, model.recording.pulls)
    with patch.object(programs, "load_ir", partial(load_ir, as_written=as_written)):
        return CompiledPrograms(translate(model.recording.program, calls), model)
