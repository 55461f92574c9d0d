"""Models at vertex granularity, as the engine takes them: vertex functions by type id.

With outputs="vertices" the classifier and the losses are vertices of the graph, so policies batch
them, too. The output function is split at the value that it pushes: a vertex of type "output"
computes that value from the vertex it reads, one of type "loss" the loss from the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.granularity.sharing import find_shareable_pulls, share_equal
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.vertex.operators import Node
from dynbatch.harness.vertex.program import VertexFunction, keep_ancestors

PUSHED = "pushed"  # the state that an output vertex scatters
OUTPUT, LOSS = "output", "loss"


class VertexModel:
    """Model whose scheduled units are whole vertices.

    Attributes:
        functions: by type id (type 0 is unbatchable and unused).
        output: function that runs after the last batch; None with outputs="vertices".
    """

    def __init__(
        self, model: Model, *, deduplicate_inputs: bool = False, outputs: str = "stage"
    ) -> None:
        self.model = model
        traced = trace_functions(model)
        self.functions: Mapping[int, VertexFunction] = {
            type_id: traced[name] for type_id, name in enumerate(model.vertex_types, start=1)
        }
        self.shared = find_shareable_pulls(self.functions) if deduplicate_inputs else {}
        self.output: VertexFunction | None = traced["output"]
        self.cut = cut_output(traced["output"]) if outputs == "vertices" else None
        if self.cut is not None:
            of_outputs = enumerate(self.cut, start=len(model.vertex_types) + 1)
            self.functions = {**self.functions, **dict(of_outputs)}
            self.output = None

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """Return the model's mini-batch, with vertices merged and outputs added if configured."""
        mini_batch = self.model.mini_batch(instances)
        if self.shared:
            mini_batch = share_equal(mini_batch, self.shared)
        if self.cut is not None:
            mini_batch = add_output_vertices(mini_batch, has_loss=len(self.cut) > 1)
        return mini_batch


def cut_output(function: VertexFunction) -> tuple[VertexFunction, ...]:
    """Split an output function in two: the pushed value, and the loss if the model has one.

    Raises:
        ConfigError: if it pushes nothing, or if the loss needs more of the vertex than the pushed
            value; outputs of such a model can only be a stage.
    """
    push, loss = function.push, function.loss
    if push is None:
        raise ConfigError(f"{function.name} pushes no output; set outputs=stage")
    nodes, new = keep_ancestors(function.nodes, {push})
    output = VertexFunction(OUTPUT, nodes, scatter=((PUSHED, new[push]),))
    if loss is None:
        return (output,)
    given = list(function.nodes)
    given[push] = Node("gather", shape=given[push].shape, name=PUSHED)
    nodes, new = keep_ancestors(given, {loss})
    if any(node.op == "gather" and node.name != PUSHED for node in nodes):
        raise ConfigError("the loss reads states that are not pushed; set outputs=stage")
    return output, VertexFunction(LOSS, nodes, loss=new[loss])


def add_output_vertices(mini_batch: MiniBatch, has_loss: bool) -> MiniBatch:
    """Append a vertex for every output, and with `has_loss` one for every loss.

    They pull what the output function pulls, and are in the graph segment of the vertex that they
    read; the outputs are then the new vertices.
    """
    graph, read = mini_batch.graph, mini_batch.outputs
    n, k = graph.n_vertices, len(read)
    first_type = graph.n_types
    outputs = np.arange(n, n + k, dtype=np.int32)
    added = [(first_type, read)] + ([(first_type + 1, outputs)] if has_loss else [])
    n_added = k * len(added)
    names = (OUTPUT, LOSS)[: len(added)]
    return MiniBatch(
        graph=Graph(
            types=np.concatenate([graph.types, *(as_int_array(np.full(k, t)) for t, _ in added)]),
            arg_start=np.concatenate(
                [graph.arg_start, graph.arg_start[-1] + np.arange(1, n_added + 1, dtype=np.int32)]
            ),
            args=np.concatenate([graph.args, *(args for _, args in added)]),
            type_names=(*graph.type_names, *names),
            segments=None
            if graph.segments is None
            else np.concatenate([graph.segments, *[graph.segments[read]] * len(added)]),
            **_extend_phases(graph, k, len(added)),
        ),
        pulls=_extend_pulls(mini_batch, len(added)),
        outputs=outputs,
        n_instances=mini_batch.n_instances,
    )


def _extend_phases(graph: Graph, k: int, n_each: int) -> dict[str, Any]:
    """Return phases and depths if a program counted them.

    Outputs form the last phase, with losses one step deeper.
    """
    if graph.phases is None or graph.depths is None:
        return {}
    last = int(graph.phases.max(initial=0)) + 1
    phases, depths = np.full(k * n_each, last), np.arange(n_each).repeat(k)
    return {
        "phases": as_int_array(np.concatenate([graph.phases, phases])),
        "depths": as_int_array(np.concatenate([graph.depths, depths])),
    }


def _extend_pulls(mini_batch: MiniBatch, n_each: int) -> dict[str, IntArray]:
    read, special = mini_batch.outputs, mini_batch.output_pulls
    pulls = {}
    for name, values in mini_batch.pulls.items():
        of_outputs = values[read] if special is None else special[name]
        pulls[name] = np.concatenate([values, *[of_outputs] * n_each])
    return pulls
