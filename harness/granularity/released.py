"""Graph that ED-Batch's released code builds, and whose batches it counts.

- A vertex function that computes anything is a block: one vertex, and one *get* vertex per
  scattered state, whose batch is forced to come right after the block's.
- A vertex function of lookups only is one vertex per lookup, without a block.
- One that only sums its children is one vertex per state, with a separate type for each number of
  children.
- One that scatters bare parameters is those parameters.
- The output function adds one vertex per operator, each bare parameter one unbatchable vertex, and
  one vertex sums all losses. If the graph has segments, each loss is requested separately, and
  nothing sums them.

All of this is derived from the traced vertex functions.

Source: Chen et al., ICML 2023, released code, dynet/ooc-block.cc (blocks) and benchmark/models.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph, MiniBatch
from dynbatch.harness.vertex.program import VertexFunction

# Inputs of a vertex function, which are no vertices of the released graph.
ENTRANCES = ("gather", "gather_each", "pull", "parameter", "zeros", "ones")


def build_released_graph(model: Model, mini_batch: MiniBatch) -> Graph:
    """Return the graph whose batches ED-Batch's release counts for this mini-batch.

    Blocks are declared, and so numbered, before the first graph; other types by first appearance.
    """
    functions = trace_functions(model)
    output = functions.pop("output")
    read = set(mini_batch.outputs.tolist())
    building = _Building()
    bare = _parameters(output)
    for function in functions.values():
        if _is_constant(function):
            bare += _parameters(function)
        elif not (_is_lookup_only(function) or _is_sum_only(function)):
            building.declare_block(function)
    weights = {name: building.add("parameter", []) for name in dict.fromkeys(bare)}
    states: list[dict[str, int]] = []  # released vertex of every state of every vertex
    losses: list[int] = []
    graph = mini_batch.graph
    segments = [0] * graph.n_vertices if graph.segments is None else graph.segments.tolist()
    for vertex, type_id in enumerate(graph.types.tolist()):
        building.segment = segments[vertex]
        children = [states[child] for child in graph.select_args(vertex).tolist()]
        function = functions[graph.type_names[type_id]]
        states.append(_add_vertex(building, function, children, weights))
        if vertex in read:
            losses += _add_output(building, output, states[vertex], weights)
    if losses and graph.segments is None:
        building.add("sum", losses)
    return building.build_graph(in_segments=graph.segments is not None)


@dataclass(slots=True)
class _Building:
    """Vertices and types so far; the type named "parameter" is the unbatchable one.

    Attributes:
        segment: graph segment of the vertices that are added.
    """

    segment: int = 0
    segments: list[int] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    arg_start: list[int] = field(default_factory=lambda: [0])
    args: list[int] = field(default_factory=list)
    follows: list[int] = field(default_factory=lambda: [NO_TYPE])
    type_ids: dict[str, int] = field(default_factory=lambda: {"parameter": UNBATCHABLE})

    def declare(self, type_name: str, follows: int = NO_TYPE) -> int:
        """Return the id of a type; a new type gets the next free id."""
        if type_name not in self.type_ids:
            self.type_ids[type_name] = len(self.type_ids)
            self.follows.append(follows)
        return self.type_ids[type_name]

    def declare_block(self, function: VertexFunction) -> None:
        """Declare the types of a block and of its get vertices."""
        block = self.declare(function.name)
        for state, _ in function.scatter:
            self.declare(_get(function, state), follows=block)

    def add(self, type_name: str, args: list[int]) -> int:
        """Append a vertex and return its id."""
        self.declare(type_name)
        self.types.append(self.type_ids[type_name])
        self.segments.append(self.segment)
        self.args += args
        self.arg_start.append(len(self.args))
        return len(self.types) - 1

    def build_graph(self, *, in_segments: bool) -> Graph:
        """Return the finished graph."""
        return Graph(
            types=np.array(self.types, dtype=np.int32),
            arg_start=np.array(self.arg_start, dtype=np.int32),
            args=np.array(self.args, dtype=np.int32),
            type_names=tuple(self.type_ids),
            follows=np.array(self.follows, dtype=np.int32),
            segments=np.array(self.segments, dtype=np.int32) if in_segments else None,
        )


def _get(function: VertexFunction, state: str) -> str:
    return f"{function.name}.get_{state}"


def _find_computing_ops(function: VertexFunction) -> set[str]:
    return {node.op for node in function.nodes if node.op not in ENTRANCES}


def _is_lookup_only(function: VertexFunction) -> bool:
    return _find_computing_ops(function) == {"lookup"}


def _is_sum_only(function: VertexFunction) -> bool:
    return _find_computing_ops(function) == {"sum_edges"} and len(function.nodes) == 2 * len(
        function.scatter
    )


def _is_constant(function: VertexFunction) -> bool:
    """Return True if every state is a parameter, which the tracer writes as a bias on zeros."""
    sources = {node.op for node in function.nodes}
    return _find_computing_ops(function) == {"bias"} and not sources & {
        "gather",
        "gather_each",
        "pull",
    }


def _parameters(function: VertexFunction) -> list[str]:
    return [node.name for node in function.nodes if node.op == "parameter"]


def _add_vertex(
    building: _Building,
    function: VertexFunction,
    children: list[dict[str, int]],
    weights: dict[str, int],
) -> dict[str, int]:
    """Add one application of a vertex function; return the released vertex of each state."""
    nodes = function.nodes
    if _is_lookup_only(function):
        return {
            state: building.add(f"{function.name}.{state}", []) for state, _ in function.scatter
        }
    if _is_sum_only(function):
        added = {state: nodes[nodes[i].inputs[0]].name for state, i in function.scatter}
        return {
            state: building.add(f"sum of {len(children)}", [child[name] for child in children])
            for state, name in added.items()
        }
    if _is_constant(function):
        return {state: weights[nodes[nodes[i].inputs[1]].name] for state, i in function.scatter}
    args: list[int] = []
    for i in function.find_gathers():
        node = nodes[i]
        chosen = children if node.op == "gather_each" else [children[node.index]]
        args += [child[node.name] for child in chosen]
    block = building.add(function.name, args)
    return {state: building.add(_get(function, state), [block]) for state, _ in function.scatter}


def _add_output(
    building: _Building, output: VertexFunction, state: dict[str, int], weights: dict[str, int]
) -> list[int]:
    """Add the operators of the output function; return the vertex of its loss, if it has one."""
    made: dict[int, int] = {}
    for i, node in enumerate(output.nodes):
        if node.op in ("gather", "gather_each"):
            made[i] = state[node.name]
        elif node.op == "parameter":
            made[i] = weights[node.name]
        elif node.op not in ENTRANCES:
            args = [made[k] for k in node.inputs if k in made]
            made[i] = building.add(f"output.{node.op}", args)
    return [] if output.loss is None else [made[output.loss]]
