"""An engine with an example model on it."""

from __future__ import annotations

from typing import Any

from harness.contracts.policy import load_policy
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.granularity.vertices import VertexModel
from harness.policies.parts.rounds import schedule_in_rounds
from harness.values.graph import MiniBatch
from tests.support.engine_models import example


class Setting:
    """An engine with a model on it, mini-batch by mini-batch."""

    def __init__(self, name: str, switches: Switches | None = None, n_outputs: int = 1) -> None:
        self.name = name
        model, self.instances, self.weights = example(name)
        self.model = VertexModel(model, share_equal_inputs=False, outputs="stage")
        assert self.model.output is not None
        outputs = [self.model.output] * n_outputs
        self.engine = Engine(
            self.model.functions, outputs, self.weights, switches or Switches(), "cpu", train=True
        )
        self.backend = self.engine.backend

    def arrange(self, mini_batch: MiniBatch) -> None:
        schedule = schedule_in_rounds(load_policy("agenda"), mini_batch.graph)
        self.engine.arrange(mini_batch, schedule)

    def train(self, instances: list[Any]) -> float:
        self.arrange(self.model.mini_batch(instances))
        self.engine.forward()
        loss = self.engine.loss()
        self.engine.backward()
        return loss
