"""Rewrites of vertex functions that reduce the number of kernels.

Narrowing: if kernels can start at any column, elementwise operators over joined gates are split
into one for every gate: slice(sigmoid(x)) becomes sigmoid(slice(x)). One kernel then computes r, z
and r h of a GRU, instead of one for the joined gates and another one after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dynbatch.harness.vertex.autodiff import Gradient
from dynbatch.harness.vertex.operators import OPERATORS, Node
from dynbatch.harness.vertex.program import Builder, VertexFunction, find_consumers


def sink_slices(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """Replace slice(x + bias) by slice(x) + slice(bias), so that the sum joins the gate's kernel.

    A sliced bias starts at column `index` of its parameter.

    Returns:
        The new nodes, and the new id of every old node.
    """
    new: list[Node] = []
    moved: list[int] = []
    for node in nodes:
        inputs = tuple(moved[i] for i in node.inputs)
        if node.op == "slice" and new[inputs[0]].op == "bias":
            x, bias = new[inputs[0]].inputs
            new.append(Node("slice", (x,), node.shape, node.domain, index=node.index))
            new.append(
                Node("bias", (len(new) - 1, bias), node.shape, node.domain, index=node.index)
            )
        else:
            new.append(replace(node, inputs=inputs))
        moved.append(len(new) - 1)
    return tuple(new), tuple(moved)


def sink_all_slices(
    function: VertexFunction, gradient: Gradient | None
) -> tuple[VertexFunction, Gradient | None]:
    """Return a function, and its gradient if there is one, with all slices sunk."""
    nodes, moved = sink_slices(function.nodes if gradient is None else gradient.nodes)
    forward = nodes if gradient is None else nodes[: moved[len(function.nodes) - 1] + 1]
    function = function.replace_nodes(forward, moved.__getitem__)
    if gradient is not None:
        gradient = Gradient(
            nodes,
            len(function.nodes),
            tuple((moved[a], moved[b]) for a, b in gradient.gathers),
            tuple(moved[i] for i in gradient.sinks),
        )
    return function, gradient


CONSTANTS = ("zeros", "ones")


def narrow_function(function: VertexFunction) -> VertexFunction:
    """Return a function without elementwise values that are only sliced.

    Args:
        function: A function whose gradient is not derived yet.
    """
    return _Narrowing(function, _find_only_sliced(function)).run()


def _find_only_sliced(function: VertexFunction) -> frozenset[int]:
    """Find elementwise vectors that only slices, or other such vectors, read."""
    nodes, results = function.nodes, function.results
    consumers = find_consumers(nodes, range(len(nodes)))
    sliced: set[int] = set()
    for i in reversed(range(len(nodes))):
        narrow = [k for k in consumers[i] if nodes[k].op == "slice" or k in sliced]
        if consumers[i] and len(narrow) == len(consumers[i]) and _can_be_cut(nodes[i], nodes):
            sliced |= set() if i in results else {i}
    return frozenset(sliced)


def _can_be_cut(node: Node, nodes: Sequence[Node]) -> bool:
    """Return whether a value can be computed in parts.

    A bias cannot, because its gradient is that of the whole vector.
    """
    elementwise = OPERATORS[node.op].elementwise and node.op != "bias"
    return elementwise and len(node.shape) == 1 and all(nodes[k].op != "pull" for k in node.inputs)


@dataclass(slots=True)
class _Narrowing:
    function: VertexFunction
    cut: frozenset[int]
    builder: Builder = field(default_factory=Builder)
    made: dict[int, int] = field(default_factory=dict)

    def run(self) -> VertexFunction:
        if not self.cut:
            return self.function
        for i in range(len(self.function.nodes)):
            if i not in self.cut:
                self.made[i] = self._make(i)
        return self.function.replace_nodes(self.builder.nodes, self.made.__getitem__)

    def _make(self, i: int) -> int:
        node = self.function.nodes[i]
        if node.op == "slice":
            return self._build_columns(node.inputs[0], node.index, node.width)
        return self.builder.copy(node, [self.made[k] for k in node.inputs], node.shape)

    def _build_columns(self, i: int, start: int, width: int) -> int:
        """Return columns of a value, computed separately if the value is cut."""
        node = self.function.nodes[i]
        if node.op in CONSTANTS:
            return self.builder.copy(node, [], (width,))
        if i not in self.cut:
            return self.builder.slice(self.made[i], start, width)
        operands = [self._build_columns(k, start, width) for k in node.inputs]
        return self.builder.copy(node, operands, (width,))
