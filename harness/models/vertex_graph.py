"""A model at vertex granularity, as the engine takes it: its own vertex functions by type id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.graph import MiniBatch
from harness.models.base import Model, traced_functions
from harness.models.sharing import share_equal, shareable_pulls
from harness.vertex.program import VertexFunction


class VertexModel:
    """functions: by type id (type 0 is unbatchable and unused). output: read after the last
    batch.
    """

    def __init__(self, model: Model, *, share_equal_inputs: bool = False) -> None:
        self.model = model
        traced = traced_functions(model)
        self.functions: Mapping[int, VertexFunction] = {
            type_id: traced[name] for type_id, name in enumerate(model.vertex_types, start=1)
        }
        self.output: VertexFunction | None = traced["output"]

        self.shared = shareable_pulls(self.functions) if share_equal_inputs else {}

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """The model's own mini-batch, with equal vertices merged where that was asked for."""
        mini_batch = self.model.mini_batch(instances)
        return share_equal(mini_batch, self.shared) if self.shared else mini_batch
