"""A model at vertex granularity, as the engine takes it: its own vertex functions by type id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.graph import MiniBatch
from harness.models.base import Model, traced_functions
from harness.vertex.program import VertexFunction


class VertexModel:
    """functions: by type id (type 0 is unbatchable and unused). output: read after the last
    batch.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        traced = traced_functions(model)
        self.functions: Mapping[int, VertexFunction] = {
            type_id: traced[name] for type_id, name in enumerate(model.vertex_types, start=1)
        }
        self.output: VertexFunction | None = traced["output"]

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """The model's own mini-batch."""
        return self.model.mini_batch(instances)
