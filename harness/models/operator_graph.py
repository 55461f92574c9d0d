"""A mini-batch at operator granularity: one vertex for every operator application, as in DyNet.

Parameter nodes and the final sum of the losses, which DyNet also counts, do no batched work and are
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.graph import Graph, MiniBatch
from harness.instances import IntArray
from harness.models.base import Model, traced_functions
from harness.models.operator_functions import PULLED, Argument, FunctionTable, Template
from harness.vertex.program import VertexFunction


class OperatorModel:
    """A model rewritten so that every operator is a vertex function of its own.

    functions: by id, as MiniBatch.functions names them. There is no output function: its operators
    are vertices too.
    """

    output: VertexFunction | None = None

    def __init__(self, model: Model) -> None:
        self.model, self.table = model, FunctionTable()
        traced = traced_functions(model)
        self.templates = {name: self.table.template(f) for name, f in traced.items()}

    @property
    def functions(self) -> Mapping[int, VertexFunction]:
        """Vertex functions by id."""
        return self.table.functions

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """Expand the model's mini-batch."""
        return self.expand(self.model.mini_batch(instances))

    def expand(self, vertices: MiniBatch) -> MiniBatch:
        """Replace every vertex, and every output, by its operators."""
        return _Expansion(self, vertices).run()


def operator_graph(model: Model, mini_batch: MiniBatch) -> Graph:
    """Return the operator-granular graph of a vertex-granular mini-batch."""
    return OperatorModel(model).expand(mini_batch).graph


class _Expansion:
    def __init__(self, model: OperatorModel, vertices: MiniBatch) -> None:
        self.model, self.vertices, self.graph = model, vertices, vertices.graph
        names = self.graph.type_names
        self.templates = [model.templates.get(name) for name in names]
        n_ops = [len(t.applications) if t else 0 for t in self.templates]
        sizes = np.array(n_ops, dtype=np.int32)[self.graph.types]
        ends = np.cumsum(sizes, dtype=np.int32)
        self.first = (ends - sizes).astype(np.int32)  # operator vertex at which a vertex begins
        self.n_inner = int(ends[-1]) if len(ends) else 0
        self.out = model.templates["output"]
        n = self.n_inner + len(vertices.outputs) * len(self.out.applications)
        self.types = np.zeros(n, dtype=np.int32)
        self.functions = np.zeros(n, dtype=np.int32)
        self.n_args = np.zeros(n, dtype=np.int32)
        self.pulled = np.full(n, -1, dtype=np.int32)
        self.args: list[tuple[IntArray, int, IntArray]] = []  # operators, slot, operands

    def run(self) -> MiniBatch:
        for type_id, template in enumerate(self.templates):
            if template is not None:
                members = np.flatnonzero(self.graph.types == type_id)
                self._place(template, members, self.first[members], self._child)
        read = self.vertices.outputs
        base = self.n_inner + np.arange(len(read), dtype=np.int32) * len(self.out.applications)
        self._place(self.out, read, base, lambda vertex, _slot: vertex)
        arg_start = np.zeros(len(self.types) + 1, dtype=np.int32)
        np.cumsum(self.n_args, out=arg_start[1:])
        args = np.empty(arg_start[-1], dtype=np.int32)
        for operators, slot, operands in self.args:
            args[arg_start[operators] + slot] = operands
        table = self.model.table
        graph = Graph(
            types=self.types,
            arg_start=arg_start,
            args=args,
            type_names=tuple(table.names),
            cheap=np.array(table.cheap, dtype=np.bool_),
        )
        at = self.out.pushed_at
        pushed = self._pushed_states(read) if at is None else base + at
        return MiniBatch(
            graph, {PULLED: self.pulled}, pushed, self.vertices.n_instances, self.functions
        )

    def _child(self, members: IntArray, slot: int) -> IntArray:
        return self.graph.args[self.graph.arg_start[members] + slot]

    def _place(self, template: Template, members: Any, base: Any, child: Any) -> None:
        for k, application in enumerate(template.applications):
            operators = base + k
            self.types[operators] = application.type
            self.functions[operators] = application.function
            self.n_args[operators] = len(application.arguments)
            if application.pull is not None:
                self.pulled[operators] = self.vertices.pulls[application.pull][members]
            for slot, argument in enumerate(application.arguments):
                self.args.append((operators, slot, self._operand(argument, members, base, child)))

    def _operand(self, argument: Argument, members: Any, base: Any, child: Any) -> IntArray:
        if argument.local is not None:
            return np.asarray(base + argument.local)
        return self._state(child(members, argument.slot), argument.state)

    def _state(self, vertices: Any, state: str) -> IntArray:
        """Operator vertex that computes a state of each vertex."""
        at = np.array([t.state_at.get(state, 0) if t else 0 for t in self.templates])
        return np.asarray(self.first[vertices] + at[self.graph.types[vertices]], dtype=np.int32)

    def _pushed_states(self, read: IntArray) -> IntArray:
        """Outputs that are a state of the vertex read, pushed as it is."""
        function = traced_functions(self.model.model)["output"]
        assert function.push is not None
        return self._state(read, function.nodes[function.push].name)
