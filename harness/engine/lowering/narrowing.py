"""Elementwise operators over joined gates, taken apart into one for every gate.

slice(sigmoid(x)) becomes sigmoid(slice(x)): all that is computed position by position then has the
width of a gate, and one kernel computes r, z and r h of a GRU where it would have been one for the
joined gates and one behind it. Only for kernels that do not mind where a gate's columns begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.engine.lowering.absorption import find_consumers
from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import Builder, VertexFunction

CONSTANTS = ("zeros", "ones")


def narrowed(function: VertexFunction) -> VertexFunction:
    """A function, its gradient not yet derived, without elementwise values that are only sliced."""
    return _Narrowing(function, _only_sliced(function)).run()


def _only_sliced(function: VertexFunction) -> frozenset[int]:
    """Elementwise vectors that are read by slices alone, or by others of their kind."""
    shown = (i for i in (function.push, function.loss) if i is not None)
    results = {*shown, *(i for _, i in function.scatter)}
    nodes = function.nodes
    consumers = find_consumers(nodes, range(len(nodes)))
    found: set[int] = set()
    for i in reversed(range(len(nodes))):
        narrow = [k for k in consumers[i] if nodes[k].op == "slice" or k in found]
        if consumers[i] and len(narrow) == len(consumers[i]) and _can_be_cut(nodes[i], nodes):
            found |= set() if i in results else {i}
    return frozenset(found)


def _can_be_cut(node: Node, nodes: Sequence[Node]) -> bool:
    """A bias stays whole: its gradient is that of the whole vector."""
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
        return replace(
            self.function,
            nodes=tuple(self.builder.nodes),
            scatter=tuple((state, self.made[i]) for state, i in self.function.scatter),
            push=self._new(self.function.push),
            loss=self._new(self.function.loss),
        )

    def _new(self, i: int | None) -> int | None:
        return None if i is None else self.made[i]

    def _make(self, i: int) -> int:
        node = self.function.nodes[i]
        if node.op == "slice":
            return self._columns(node.inputs[0], node.index, node.width)
        return self._added(node, [self.made[k] for k in node.inputs], node.shape)

    def _columns(self, i: int, start: int, width: int) -> int:
        """Columns of a value, computed by themselves where it is cut."""
        node = self.function.nodes[i]
        if node.op in CONSTANTS:
            return self._added(node, [], (width,))
        if i not in self.cut:
            return self.builder.slice(self.made[i], start, width)
        operands = [self._columns(k, start, width) for k in node.inputs]
        return self._added(node, operands, (width,))

    def _added(self, node: Node, inputs: Sequence[int], shape: tuple[int, ...]) -> int:
        return self.builder.add(
            node.op, *inputs, shape=shape, name=node.name, index=node.index, value=node.value,
            domain=node.domain,
        )  # fmt: skip
