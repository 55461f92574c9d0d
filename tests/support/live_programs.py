"""Adapters whose rounds run live, and a program that only they can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.contracts.model import Model, initial_weights
from harness.contracts.system import RunSettings
from harness.models.stack_rnn import StackRNN
from harness.programs.blocks import RecordingOptions
from harness.programs.writer import Body, Writer
from harness.values.graph import MiniBatch
from harness.values.instances import Chain
from systems.on_core.acrobat import Adapter
from tests.support.scripted_programs import Scripted, ScriptedModel

PLAIN = RecordingOptions()
SEED = 3


def live_adapter(
    model: Model, how: RecordingOptions = PLAIN, threads: int = 1, **options: Any
) -> Adapter:
    """Prepared, with weights of SEED; programs are run even where arrays make the same graph."""
    options = {"rounds": "live", "recording": "program"} | options
    options |= {"static_depths": how.hoisting}
    options |= {"phases": how.phases, "ghosts": how.ghosts, "restart_depths": how.restart}
    adapter = Adapter(RunSettings("infer", "cpu", threads, 1, 0.1, 0, options=options))
    adapter.prepare(model, initial_weights(model, SEED))
    return adapter


class Decides(ScriptedModel):
    """Goes on as long as a number of the state itself says so."""

    def program(self, p: Writer, instance: Scripted) -> Body:
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
    """A model that says itself how its graph is made, and has rounds in it."""

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        return self.recording.mini_batch(instances)
