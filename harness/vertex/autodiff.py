"""Symbolic gradient of a vertex function, derived once.

The gradient of a gather is a scatter, and vice versa. Source: Xu et al., "Cavs", ATC 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.vertex.operators import OPERATORS, Node
from dynbatch.harness.vertex.program import Builder, VertexFunction

SOURCES = ("pull", "parameter", "zeros", "ones")


@dataclass(frozen=True, slots=True)
class Gradient:
    """Program of F and dF: the forward operators, then the backward ones.

    Attributes:
        gathers: (gather node, node of its gradient) pairs; the gradients are added to the
            children's.
        sinks: nodes that sum over all vertices into the gradient of the parameter that they name.
    """

    nodes: tuple[Node, ...]
    n_forward: int
    gathers: tuple[tuple[int, int], ...]
    sinks: tuple[int, ...]


def differentiate(function: VertexFunction) -> Gradient:
    """Derive dF.

    Raises:
        ConfigError: if an operator on a path to the loss has no gradient rule.
    """
    return _Differentiator(function).run()


class _Differentiator:
    def __init__(self, function: VertexFunction) -> None:
        self.function = function
        self.builder = Builder(function.nodes)
        self.parts: dict[int, list[int]] = {}  # node -> gradients of all of it
        self.slices: dict[int, dict[tuple[int, int], int]] = {}  # node -> columns -> gradient
        self.sinks: list[int] = []

    def run(self) -> Gradient:
        b, function = self.builder, self.function
        for state, node in function.scatter:
            self._add_gradient(node, b.add("state_gradient", shape=b[node].shape, name=state))
        if function.loss is not None:
            self._add_gradient(function.loss, b.add("ones", shape=(1,)))
        gathers = []
        for node in reversed(range(len(function.nodes))):
            gradient = self._sum_gradients(node)
            if gradient is None or b[node].op in SOURCES:
                continue
            if b[node].op in ("gather", "gather_each"):
                gathers.append((node, gradient))
            else:
                self._propagate(node, gradient)
        return Gradient(
            tuple(b.nodes), len(function.nodes), tuple(sorted(gathers)), tuple(self.sinks)
        )

    def _add_gradient(self, node: int, gradient: int) -> None:
        self.parts.setdefault(node, []).append(gradient)

    def _propagate(self, node: int, dy: int) -> None:
        b = self.builder
        if b[node].op == "slice":
            columns = self.slices.setdefault(b[node].inputs[0], {})
            columns[b[node].index, b[dy].width] = dy  # equal slices are one node
            return
        rule = OPERATORS[b[node].op].gradient
        if b[node].op == "concat" and len(b[node].shape) > 1:
            raise ConfigError(
                f"{self.function.name} joins matrices, which has no gradient; set mode=infer"
            )
        if rule is None:
            raise ConfigError(
                f"operator {b[node].op} in {self.function.name} has no gradient; add a rule"
            )
        for operand, gradient in zip(b[node].inputs, rule(b, node, dy), strict=True):
            if gradient is None:
                continue
            if OPERATORS[b[gradient].op].sink:
                self.sinks.append(self._number_sink(gradient))
            else:
                self._add_gradient(operand, gradient)

    def _number_sink(self, sink: int) -> int:
        """Return a separate sink for each equal one: x + b + b adds dy to db twice."""
        node = self.builder[sink]
        n_equal = sum(replace(self.builder[k], index=0) == node for k in self.sinks)
        return self.builder.add(node.op, *node.inputs, name=node.name, index=n_equal)

    def _sum_gradients(self, node: int) -> int | None:
        parts = [*self.parts.get(node, []), *self._join_slices(node)]
        if not parts:
            return None
        total = parts[0]
        for part in parts[1:]:
            total = self.builder.add("add", total, part)
        return total

    def _join_slices(self, node: int) -> list[int]:
        """Join gradients of disjoint columns into one vector; overlapping ones need several."""
        b, domain = self.builder, self.builder[node].domain
        pending = sorted(self.slices.get(node, {}).items())
        joined = []
        while pending:
            pieces, later, end = [], [], 0
            for (start, width), gradient in pending:
                if start < end:
                    later.append(((start, width), gradient))
                    continue
                if start > end:
                    pieces.append(b.add("zeros", shape=(start - end,), domain=domain))
                pieces.append(gradient)
                end = start + width
            if end < b[node].width:
                pieces.append(b.add("zeros", shape=(b[node].width - end,), domain=domain))
            joined.append(pieces[0] if len(pieces) == 1 else b.add("concat", *pieces))
            pending = later
        return joined
