"""A model made ready for the engine: its graphs at one granularity, and what executes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.contracts.model import Model, Weights
from harness.contracts.policy import Policy
from harness.contracts.system import Clock, RunSettings
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.granularity.operators import OperatorModel
from harness.granularity.vertices import VertexModel
from harness.policies.parts.rounds import schedule_in_rounds
from harness.programs.model import translate_programs
from harness.values.graph import MiniBatch
from harness.values.schedule import Schedule


class NoClock:
    """Takes the marks of a run that is not measured, or measured as a whole."""

    def mark(self, phase: str) -> None:
        """Nothing is read."""

    def divide(self, shares: Mapping[str, float]) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """model: from instances to mini-batches of a granularity. engine: executes them."""

    model: OperatorModel | VertexModel
    engine: Engine

    def scheduled(
        self, instances: Sequence[Any], policy: Policy, clock: Clock
    ) -> tuple[MiniBatch, Schedule]:
        """Construct and schedule a mini-batch, and lay it out."""
        mini_batch, schedule = self.planned(instances, policy, clock)
        self.engine.arrange(mini_batch, schedule)
        clock.mark("schedule")
        return mini_batch, schedule

    def planned(
        self, instances: Sequence[Any], policy: Policy, clock: Clock
    ) -> tuple[MiniBatch, Schedule]:
        """Construct a mini-batch, and schedule it."""
        mini_batch = self.model.mini_batch(instances)
        clock.mark("construct")
        return mini_batch, schedule_in_rounds(policy, mini_batch.graph)

    def compute(self, clock: Clock) -> None:
        """Run what was laid out last: forward, and in training backward."""
        self.engine.forward()
        clock.mark("forward")
        if self.engine.train:
            self.engine.backward()
            clock.mark("backward")


def prepared(
    model: Model,
    weights: Weights,
    switches: Switches,
    settings: RunSettings,
    engine_type: type[Engine] = Engine,
) -> Prepared:
    """Trace, differentiate, lower and compile; raises UnsupportedTrial as Engine does."""
    translate_programs(model)
    graphs = (
        OperatorModel(model)
        if switches.granularity == "operator"
        else VertexModel(
            model, share_equal_inputs=switches.share_equal_inputs, outputs=switches.outputs
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
    return Prepared(graphs, engine)
