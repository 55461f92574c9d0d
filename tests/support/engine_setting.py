"""Engine with a model, by default one of the examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, Weights
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

LEARNING_RATE = 0.1


class Setting:
    """Engine with a model, run mini-batch by mini-batch."""

    def __init__(
        self,
        case: str | tuple[Model, list[Any], Weights],
        switches: Switches | None = None,
        kind: type[Backend] | None = None,
        device: str = "cpu",
    ) -> None:
        self.described, self.instances, self.weights = (
            example(case) if isinstance(case, str) else case
        )
        self.model = VertexModel(self.described, deduplicate_inputs=False, outputs="stage")
        functions, output, asked = self.model.functions, self.model.output, switches or Switches()
        self.engine = Engine(functions, output, self.weights, asked, device, train=True, kind=kind)
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

    def step(self, instances: list[Any], tolerance: float = 3e-5) -> list[str]:
        """Train and update, and return disagreements, also of the parameters after the update."""
        before = self.backend.read_weights()
        wrong, gradients = self.wrong(instances, tolerance), self.backend.gradients()
        self.engine.update(LEARNING_RATE)
        after = self.backend.read_weights()
        for name, weight in before.items():
            expected = weight - np.float32(LEARNING_RATE) * gradients[name]
            if not np.allclose(after[name], expected, rtol=1e-6, atol=1e-6):
                wrong.append(f"{name} after the update")
        return wrong
