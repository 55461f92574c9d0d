"""A model prepared for the engine: its graphs at one granularity, and the engine that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.policy import Policy
from dynbatch.harness.contracts.system import Clock, RunSettings
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.granularity.operators import OperatorModel
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.programs.model import translate_programs
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.schedule import Schedule


class NoClock:
    """Clock that ignores the marks of a run that is not measured, or is measured as a whole."""

    def mark(self, phase: str) -> None:
        """Ignore the end of a phase."""

    def divide(self, shares: Mapping[str, float]) -> None:
        """Ignore the fractions of phases."""


@dataclass(frozen=True, eq=False, slots=True)
class PreparedModel:
    """Model at one granularity, with its engine.

    Attributes:
        model: converts instances to mini-batches of one granularity.
        engine: executes them.
    """

    model: OperatorModel | VertexModel
    engine: Engine

    def arrange_mini_batch(
        self, instances: Sequence[Any], policy: Policy, clock: Clock
    ) -> tuple[MiniBatch, Schedule]:
        """Construct, schedule and lay out a mini-batch."""
        mini_batch, schedule = self.schedule_mini_batch(instances, policy, clock)
        self.engine.arrange(mini_batch, schedule)
        clock.mark("schedule")
        return mini_batch, schedule

    def schedule_mini_batch(
        self, instances: Sequence[Any], policy: Policy, clock: Clock
    ) -> tuple[MiniBatch, Schedule]:
        mini_batch = self.model.mini_batch(instances)
        clock.mark("construct")
        return mini_batch, schedule_in_segments(policy, mini_batch.graph)

    def compute(self, clock: Clock) -> None:
        """Run the last mini-batch that was laid out: forward, and in training backward."""
        self.engine.forward()
        clock.mark("forward")
        if self.engine.train:
            self.engine.backward()
            clock.mark("backward")


def prepare_model(
    model: Model,
    weights: Weights,
    switches: Switches,
    settings: RunSettings,
    engine_type: type[Engine] = Engine,
) -> PreparedModel:
    """Trace, differentiate, lower and compile a model.

    Raises:
        UnsupportedTrial: As for Engine.
    """
    translate_programs(model)
    graphs = (
        OperatorModel(model)
        if switches.granularity == "operator"
        else VertexModel(
            model, deduplicate_inputs=switches.deduplicate_inputs, outputs=switches.outputs
        )
    )
    engine = engine_type(
        graphs.functions,
        graphs.output,
        weights,
        switches,
        settings.device,
        train=settings.mode == "train",
        threads=settings.threads,
    )
    return PreparedModel(graphs, engine)
