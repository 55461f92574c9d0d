"""A model at vertex granularity, as the engine takes it: its own vertex functions by type id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.contracts.model import Model, traced_functions
from harness.granularity.output_vertices import cut_output, output_types, with_output_vertices
from harness.granularity.sharing import share_equal, shareable_pulls
from harness.values.graph import MiniBatch
from harness.vertex.program import VertexFunction


class VertexModel:
    """functions: by type id (type 0 is unbatchable and unused). output: read after the last
    batch; None where outputs="vertices" makes it vertices of the graph.
    """

    def __init__(
        self, model: Model, *, share_equal_inputs: bool = False, outputs: str = "stage"
    ) -> None:
        self.model = model
        traced = traced_functions(model)
        self.functions: Mapping[int, VertexFunction] = {
            type_id: traced[name] for type_id, name in enumerate(model.vertex_types, start=1)
        }
        self.shared = shareable_pulls(self.functions) if share_equal_inputs else {}
        self.output: VertexFunction | None = traced["output"]
        self.cut = cut_output(traced["output"]) if outputs == "vertices" else None
        if self.cut is not None:
            self.functions = {**self.functions, **output_types(self.cut, model.vertex_types)}
            self.output = None

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """The model's own mini-batch; equal vertices merged, outputs added, where asked for."""
        mini_batch = self.model.mini_batch(instances)
        if self.shared:
            mini_batch = share_equal(mini_batch, self.shared)
        if self.cut is not None:
            mini_batch = with_output_vertices(mini_batch, self.cut.loss is not None)
        return mini_batch
