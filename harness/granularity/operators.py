"""Mini-batches at operator granularity: one vertex per operator application, as in DyNet.

Parameter nodes and the final sum of the losses, which DyNet also counts, do no batched work and are
omitted. A vertex with a variable number of children is unrolled for its number (`unroll`). A state
that a vertex only passes on is another name for its child's state and not an operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.granularity.operator_functions import (
    PULLED,
    FunctionTable,
    Template,
    ValueSource,
    is_variadic,
    unroll,
)
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.vertex.program import VertexFunction

NOWHERE = -1


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
        self.templates: dict[tuple[str, int | None], Template] = {}
        for name, function in self.traced.items():
            if not is_variadic(function):
                self.get_template(name)

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
            ScheduleError: if a vertex has too few children, or a child without the state that it
                reads.
        """
        return _Expansion(self, vertices).run()

    def group_vertices(self, graph: Graph) -> Iterator[tuple[Template, IntArray]]:
        """Yield the vertices that have the same operators, with these operators."""
        n_args = graph.arg_start[1:] - graph.arg_start[:-1]
        for type_id, name in enumerate(graph.type_names):
            members = np.flatnonzero(graph.types == type_id).astype(np.int32)
            if len(members) == 0:
                continue
            if is_variadic(self.traced[name]):
                counts = n_args[members]
                for n in np.flatnonzero(np.bincount(counts)).tolist():
                    yield self.get_template(name, n), members[counts == n]
            else:
                yield self.get_template(name), members


def build_operator_graph(model: Model, mini_batch: MiniBatch) -> Graph:
    """Return the operator-granular graph of a vertex-granular mini-batch."""
    return OperatorModel(model).expand(mini_batch).graph


@dataclass(frozen=True, eq=False, slots=True)
class _VertexGroup:
    """Vertices with equal operators, or the outputs.

    Attributes:
        base: (k,), first operator vertex of each member.
        reads: vertices that outputs read, which are their only children.
    """

    template: Template
    members: IntArray
    base: IntArray
    reads: IntArray | None = None


class _Expansion:
    def __init__(self, model: OperatorModel, vertices: MiniBatch) -> None:
        self.table, self.vertices, self.graph = model.table, vertices, vertices.graph
        groups = list(model.group_vertices(self.graph))
        sizes = np.zeros(self.graph.n_vertices, dtype=np.int32)
        for template, members in groups:
            sizes[members] = len(template.applications)
        ends = np.cumsum(sizes, dtype=np.int32)
        first, n_inner = ends - sizes, int(ends[-1]) if len(ends) else 0
        self.groups = [
            _VertexGroup(template, members, first[members]) for template, members in groups
        ]
        read, out = vertices.outputs, model.get_template("output")
        base = n_inner + np.arange(len(read), dtype=np.int32) * len(out.applications)
        self.output = _VertexGroup(out, read, base, read)
        n = n_inner + len(read) * len(out.applications)
        segments = self.graph.segments
        if segments is not None:  # segment of the operator's vertex; of an output the read vertex's
            of_outputs = segments[read].repeat(len(out.applications))
            segments = np.concatenate([segments.repeat(sizes), of_outputs])
        self.segments = segments
        self.counted = self._expand_phases(sizes, len(out.applications))
        self.types = np.zeros(n, dtype=np.int32)
        self.functions = np.zeros(n, dtype=np.int32)
        self.n_args = np.zeros(n, dtype=np.int32)
        self.pulled = np.full(n, -1, dtype=np.int32)
        self.args: list[tuple[IntArray, int, IntArray]] = []  # operators, slot, operands

    def run(self) -> MiniBatch:
        self.states = self._locate_states()
        for group in (*self.groups, self.output):
            self._place(group)
        assert self.output.template.pushed is not None
        pushed = self._find_operand(self.output, self.output.template.pushed)
        n_instances = self.vertices.n_instances
        return MiniBatch(
            self._build_graph(), {PULLED: self.pulled}, pushed, n_instances, self.functions
        )

    def _build_graph(self) -> Graph:
        arg_start = np.zeros(len(self.types) + 1, dtype=np.int32)
        np.cumsum(self.n_args, out=arg_start[1:])
        args = np.empty(arg_start[-1], dtype=np.int32)
        for operators, slot, operands in self.args:
            args[arg_start[operators] + slot] = operands
        return Graph(
            types=self.types,
            arg_start=arg_start,
            args=args,
            type_names=tuple(self.table.names),
            cheap=np.array(self.table.cheap, dtype=np.bool_),
            segments=self.segments,
            **self.counted,
        )

    def _expand_phases(self, sizes: IntArray, n_out: int) -> dict[str, Any]:
        """Return phases and depths if a program counted them: a vertex's operators in sequence.

        Outputs are the program's last phase.
        """
        graph, n_read = self.graph, len(self.vertices.outputs)
        if graph.phases is None or graph.depths is None:
            return {}
        most, first = int(sizes.max(initial=0)), (np.cumsum(sizes) - sizes).repeat(sizes)
        inside = np.arange(len(first)) - first
        of_outputs = np.full(n_read * n_out, graph.phases.max(initial=0) + 1)
        phases = np.concatenate([graph.phases.repeat(sizes), of_outputs])
        in_outputs = np.tile(np.arange(n_out), n_read)
        depths = np.concatenate([graph.depths.repeat(sizes) * most + inside, in_outputs])
        return {"phases": as_int_array(phases), "depths": as_int_array(depths)}

    def _locate_states(self) -> dict[str, IntArray]:
        """Return the operator vertex of each state of every vertex (n,); NOWHERE if it has none."""
        names = list(dict.fromkeys(s for group in self.groups for s in group.template.states))
        n, passed_on = self.graph.n_vertices, False
        at = np.full(len(names) * n, NOWHERE, dtype=np.int32)
        same_as = np.arange(len(at))  # index in `at`; for a state that is passed on the child's
        for group in self.groups:
            for state, source in group.template.states.items():
                places = names.index(state) * n + group.members
                if source.local is not None:
                    at[places] = group.base + source.local
                elif source.state in names:
                    passed_on = True
                    children = self._find_children(group, source.slot)
                    same_as[places] = names.index(source.state) * n + children
        at = at[_find_chain_ends(same_as)] if passed_on else at
        return dict(zip(names, at.reshape(len(names), n), strict=True))

    def _find_children(self, group: _VertexGroup, slot: int) -> IntArray:
        if group.reads is not None:
            return group.reads
        start = self.graph.arg_start[group.members]
        n_children = self.graph.arg_start[group.members + 1] - start
        if (n_children <= slot).any():
            raise ScheduleError(
                f"a {group.template.name} vertex gathers slot {slot} but has {n_children.min()}"
                " children; fix the model's mini_batch"
            )
        return self.graph.args[start + slot]

    def _place(self, group: _VertexGroup) -> None:
        for k, application in enumerate(group.template.applications):
            operators = group.base + k
            self.types[operators] = application.type
            self.functions[operators] = application.function
            self.n_args[operators] = len(application.arguments)
            if application.pull is not None:
                self.pulled[operators] = self.vertices.pulls[application.pull][group.members]
            for slot, source in enumerate(application.arguments):
                self.args.append((operators, slot, self._find_operand(group, source)))

    def _find_operand(self, group: _VertexGroup, source: ValueSource) -> IntArray:
        """Return the operator vertex that computes a value, for each vertex of a group."""
        if source.local is not None:
            return group.base + source.local
        children = self._find_children(group, source.slot)
        if source.state not in self.states:
            missing = children[0]
        else:
            operands = self.states[source.state][children]
            if operands.min(initial=0) >= 0:
                return operands
            missing = children[operands.argmin()]
        kind = self.graph.type_names[self.graph.types[missing]]
        raise ScheduleError(
            f"a {group.template.name} vertex gathers state {source.state}, but its {kind} child"
            " does not scatter it; fix the model's mini_batch"
        )


def _find_chain_ends(after: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the end of each chain i, after[i], after[after[i]], ..."""
    while True:
        further = after[after]
        if np.array_equal(further, after):
            return after
        after = further
