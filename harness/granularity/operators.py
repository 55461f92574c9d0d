"""Mini-batches at operator granularity: one vertex per operator application, as in DyNet.

Parameter nodes and the final sum of the losses, which DyNet also counts, do no batched work and are
omitted. A vertex with a variable number of children is unrolled for its number (`unroll`). A state
that a vertex only passes on is another name for its child's state and not an operator.

Compiled code builds the graphs (expansion.py), as it builds those of whole vertices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.granularity.expansion import (
    NOTHING,
    Expanded,
    VertexKinds,
    expand,
    list_values,
    make_kinds,
)
from dynbatch.harness.granularity.operator_functions import (
    PULLED,
    FunctionTable,
    Template,
    is_variadic,
    unroll,
)
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.vertex.program import VertexFunction

OUTPUT = "output"


class OperatorModel:
    """Model in which every operator is a separate vertex function.

    Operators of the output function are vertices, too.

    Attributes:
        functions: by id, as in MiniBatch.functions; mini-batches with new numbers of children add
            functions.
    """

    output: VertexFunction | None = None

    def __init__(self, model: Model) -> None:
        self.model, self.table = model, FunctionTable()
        self.traced = trace_functions(model)
        self.pulls = sorted(
            {n.name for function in self.traced.values() for n in function.nodes if n.op == "pull"}
        )
        self.variadic = {name for name, function in self.traced.items() if is_variadic(function)}
        self.templates: dict[tuple[str, int | None], Template] = {}
        for name in self.traced:
            if name not in self.variadic:
                self.get_template(name)
        self._described: tuple[tuple[str, ...], int] | None = None  # types and templates of _kinds
        self._kinds: VertexKinds

    @property
    def functions(self) -> Mapping[int, VertexFunction]:
        """Vertex functions by id."""
        return self.table.functions

    def get_template(self, name: str, n_edges: int | None = None) -> Template:
        """Return the operators of a vertex.

        Args:
            n_edges: its number of children, if that is variable.
        """
        key = (name, n_edges)
        if key not in self.templates:
            function = self.traced[name]
            function = function if n_edges is None else unroll(function, n_edges)
            self.templates[key] = self.table.make_template(function)
        return self.templates[key]

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """Expand the model's mini-batch."""
        return self.expand(self.model.mini_batch(instances))

    def expand(self, vertices: MiniBatch) -> MiniBatch:
        """Replace every vertex, and every output, by its operators.

        Raises:
            ScheduleError: if a vertex has no function, too few children, or a child without the
                state that it reads, if an output reads a vertex that does not exist, or if the
                mini-batch has no value for a pull.
        """
        graph, read = vertices.graph, as_int_array(vertices.outputs)
        absent = read[(read < 0) | (read >= graph.n_vertices)]
        if len(absent):
            raise ScheduleError(
                f"an output reads vertex {absent[0]}, but the graph has {graph.n_vertices} vertices"
            )
        self._add_templates(graph)
        numbers = [as_int_array(vertices.get_pull(name)) for name in self.pulls]
        pulled = np.concatenate([*numbers, as_int_array([])])
        arrays = graph.types, graph.arg_start, graph.args
        kinds = self._describe_kinds(graph)
        expanded = expand(*arrays, read, kinds, pulled.reshape(len(numbers), graph.n_vertices))
        if len(expanded.missing):
            raise self._make_error(graph, expanded.missing)
        return MiniBatch(
            graph=self._build_graph(vertices, expanded),
            pulls={PULLED: as_int_array(expanded.pulled)},
            outputs=as_int_array(expanded.pushed),
            n_instances=vertices.n_instances,
            function_ids=as_int_array(expanded.functions),
        )

    def _add_templates(self, graph: Graph) -> None:
        """Add the operators of vertices with new numbers of children."""
        n_args = graph.arg_start[1:] - graph.arg_start[:-1]
        for type_id in np.flatnonzero(np.bincount(graph.types)).tolist():
            name = graph.type_names[type_id]
            if name not in self.traced:
                raise ScheduleError(
                    f"type {name} has no vertex function; fix the model's mini_batch"
                )
            if name in self.variadic:
                for n in np.flatnonzero(np.bincount(n_args[graph.types == type_id])).tolist():
                    self.get_template(name, n)

    def _list_templates(self) -> list[Template]:
        """Return all templates, that of outputs first."""
        others = (template for key, template in self.templates.items() if key != (OUTPUT, None))
        return [self.get_template(OUTPUT), *others]

    def _describe_kinds(self, graph: Graph) -> VertexKinds:
        names = graph.type_names
        described = names, len(self.templates)
        if self._described != described:
            templates = self._list_templates()
            numbers = {id(template): kind for kind, template in enumerate(templates)}
            most = max((n for _, n in self.templates if n is not None), default=0)
            by_type = np.full(len(names), NOTHING)
            by_arity = np.full((len(names), most + 1), NOTHING)
            for (name, n), template in self.templates.items():
                if name not in names:
                    continue  # the outputs, or a type that this mini-batch does not name
                if n is None:
                    by_type[names.index(name)] = numbers[id(template)]
                else:
                    by_arity[names.index(name), n] = numbers[id(template)]
            self._kinds = make_kinds(templates, self.pulls, by_type, by_arity)
            self._described = described
        return self._kinds

    def _build_graph(self, vertices: MiniBatch, expanded: Expanded) -> Graph:
        segments, read = vertices.segments, vertices.outputs
        n_out, sizes = len(self.get_template(OUTPUT).applications), np.diff(expanded.first)
        if segments is not None:  # segment of the operator's vertex; of an output the read vertex's
            of_outputs = segments[read].repeat(n_out)
            segments = np.concatenate([segments.repeat(sizes), of_outputs])
        return Graph.from_valid_arrays(
            *(expanded.types, expanded.arg_start, expanded.args, tuple(self.table.names), segments),
            **_expand_phases(vertices, sizes, n_out),
            cheap=np.array(self.table.cheap, dtype=np.bool_),
        )

    def _make_error(self, graph: Graph, missing: IntArray) -> ScheduleError:
        row, child, n_children = missing.tolist()
        template, source = list_values(self._list_templates())[row]
        if child == NOTHING:
            return ScheduleError(
                f"a {template.name} vertex gathers slot {source.slot} but has {n_children}"
                " children; fix the model's mini_batch"
            )
        kind = graph.type_names[graph.types[child]]
        return ScheduleError(
            f"a {template.name} vertex gathers state {source.state}, but its {kind} child"
            " does not scatter it; fix the model's mini_batch"
        )


def _expand_phases(vertices: MiniBatch, sizes: IntArray, n_out: int) -> dict[str, Any]:
    """Return phases and depths if a program counted them: a vertex's operators in sequence.

    Outputs are the program's last phase.
    """
    graph, n_read = vertices.graph, len(vertices.outputs)
    if graph.phases is None or graph.depths is None:
        return {}
    most, first = int(sizes.max(initial=0)), (np.cumsum(sizes) - sizes).repeat(sizes)
    inside = np.arange(len(first)) - first
    of_outputs = np.full(n_read * n_out, graph.phases.max(initial=0) + 1)
    phases = np.concatenate([graph.phases.repeat(sizes), of_outputs])
    in_outputs = np.tile(np.arange(n_out), n_read)
    depths = np.concatenate([graph.depths.repeat(sizes) * most + inside, in_outputs])
    return {"phases": as_int_array(phases), "depths": as_int_array(depths)}


def build_operator_graph(model: Model, mini_batch: MiniBatch) -> Graph:
    """Return the operator-granular graph of a vertex-granular mini-batch."""
    return OperatorModel(model).expand(mini_batch).graph
