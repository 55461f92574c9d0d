"""Engine with an example model."""

from __future__ import annotations

from typing import Any

from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.contracts.system import Counters, Result
from dynbatch.harness.engine.backend import Backend
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.graph import MiniBatch
from tests.support.engine_models import example
from tests.support.engine_runs import disagreements


class Setting:
    """Engine with a model, run mini-batch by mini-batch."""

    def __init__(
        self, name: str, switches: Switches | None = None, kind: type[Backend] | None = None
    ) -> None:
        self.described, self.instances, self.weights = example(name)
        self.model = VertexModel(self.described, deduplicate_inputs=False, outputs="stage")
        functions, output, asked = self.model.functions, self.model.output, switches or Switches()
        self.engine = Engine(functions, output, self.weights, asked, "cpu", train=True, kind=kind)
        self.backend = self.engine.backend

    def arrange(self, mini_batch: MiniBatch) -> None:
        schedule = schedule_in_segments(load_policy("agenda"), mini_batch.graph)
        self.engine.arrange(mini_batch, schedule)

    def train(self, instances: list[Any]) -> float:
        self.arrange(self.model.mini_batch(instances))
        self.engine.forward()
        loss = self.engine.loss()
        self.engine.backward()
        return loss

    def wrong(self, instances: list[Any], tolerance: float = 3e-5) -> list[str]:
        """Train, and return disagreements with the reference at the current parameters."""
        weights = self.backend.read_weights()
        loss = self.train(instances)
        found = Result(loss, self.engine.outputs(), self.backend.gradients(), Counters())
        reference = run_reference(self.described, weights, instances, "train")
        return disagreements(found, reference, tolerance)
