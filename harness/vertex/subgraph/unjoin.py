"""Gates apart: a product with joined columns becomes one product for every part that is used.

Models join the matrices of their gates; ED-Batch's release keeps them apart and leaves joining to
the layout. This takes a vertex function back to that form, so that a layout can be chosen at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.vertex.operators import OPERATORS, PARAMETER, Node
from harness.vertex.program import Builder, VertexFunction
from harness.vertex.stages import ancestors

Columns = tuple[int, int]  # first, width
WHOLE: Columns | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Columns of a parameter (of a vector: elements)."""

    parameter: str
    start: int
    width: int

    @property
    def name(self) -> str:
        """Name of the part as a parameter of its own."""
        return f"{self.parameter}[{self.start}:{self.start + self.width}]"

    def next(self, width: int) -> Part:
        """The columns behind these."""
        return Part(self.parameter, self.start + self.width, width)


@dataclass(frozen=True)
class Unjoined:
    """A function without joined gates.

    parts: what its parameters are, by the names they have. widths: columns of the parameters that
    they are parts of.
    """

    function: VertexFunction
    parts: Mapping[str, Part]
    widths: Mapping[str, int]


def unjoin(function: VertexFunction) -> Unjoined:
    """Cut every product, bias and elementwise operator that is only read in disjoint slices.

    Operators that nothing depends on are dropped, save gathers.
    """
    return _Unjoiner(function).run()


@dataclass
class _Unjoiner:
    function: VertexFunction
    builder: Builder = field(default_factory=Builder)
    parts: dict[str, Part] = field(default_factory=dict)
    made: dict[tuple[int, Columns | None], int] = field(default_factory=dict)

    def run(self) -> Unjoined:
        shown = (self.function.push, self.function.loss)
        results = [i for _, i in self.function.scatter] + [i for i in shown if i is not None]
        self._find_cuts([*results, *self.function.gathers()])
        for i, node in enumerate(self.function.nodes):  # in the order in which they were written
            if node.op not in ("slice", PARAMETER):
                for columns in sorted(self.wanted.get(i, ()), key=lambda c: c or (0, 0)):
                    self._make(i, columns)
        scatter = tuple((state, self._make(i, WHOLE)) for state, i in self.function.scatter)
        push, loss = (None if i is None else self._make(i, WHOLE) for i in shown)
        nodes = tuple(self.builder.nodes)
        function = VertexFunction(self.function.name, nodes, scatter, push, loss)
        widths = {n.name: _n_columns(n) for n in self.function.nodes if n.op == PARAMETER}
        return Unjoined(function, self.parts, widths)

    def _find_cuts(self, results: Iterable[int]) -> None:
        """Which columns of each node are read; {WHOLE} where it cannot be cut."""
        nodes, results = self.function.nodes, list(results)
        used = ancestors(nodes, results)
        self.wanted: dict[int, set[Columns | None]] = {i: {WHOLE} for i in results}
        for i in reversed(range(len(nodes))):
            if i not in used:
                continue
            node, wanted = nodes[i], self.wanted[i]
            if node.op != "slice" and not (_can_be_cut(node) and _are_disjoint(wanted)):
                wanted = self.wanted[i] = {WHOLE}
            for k in node.inputs:
                cut = OPERATORS[node.op].elementwise and nodes[k].op != PARAMETER
                mine = {_within(node, c) for c in wanted} if cut or node.op == "slice" else {WHOLE}
                self.wanted.setdefault(k, set()).update(mine)

    def _make(self, i: int, columns: Columns | None) -> int:
        """The new node that computes these columns of a node."""
        if (i, columns) not in self.made:
            self.made[i, columns] = self._new(i, columns)
        return self.made[i, columns]

    def _new(self, i: int, columns: Columns | None) -> int:
        node = self.function.nodes[i]
        if node.op == "slice":
            return self._make(node.inputs[0], _within(node, columns))
        if columns is None:
            return self._copy(node, [self._make(k, WHOLE) for k in node.inputs])
        if columns not in self.wanted[i]:
            return self.builder.slice(self._make(i, WHOLE), *columns)
        return self._copy(node, [self._operand(node, k, columns) for k in node.inputs])

    def _operand(self, node: Node, k: int, columns: Columns) -> int:
        operand = self.function.nodes[k]
        if operand.op == PARAMETER:
            part = Part(operand.name, *columns)
            self.parts[part.name] = part
            shape = (*operand.shape[:-1], part.width)
            return self.builder.add(PARAMETER, shape=shape, name=part.name)
        return self._make(k, columns if OPERATORS[node.op].elementwise else WHOLE)

    def _copy(self, node: Node, inputs: list[int]) -> int:
        if node.op == PARAMETER:
            self.parts[node.name] = Part(node.name, 0, _n_columns(node))
        given = not inputs or OPERATORS[node.op].shape is None
        return self.builder.add(
            node.op,
            *inputs,
            shape=node.shape if given or len(node.shape) > 1 else None,
            name=node.name,
            index=node.index,
            value=node.value,
            domain=node.domain,
        )


def _n_columns(parameter: Node) -> int:
    return parameter.shape[-1]


def _within(node: Node, columns: Columns | None) -> Columns | None:
    """Columns of a slice's operand, or of an elementwise operator's."""
    if node.op != "slice":
        return columns
    first, width = columns or (0, node.width)
    return node.index + first, width


def _can_be_cut(node: Node) -> bool:
    by_columns = OPERATORS[node.op].elementwise or node.op == "matmul"
    return by_columns and len(node.shape) == 1


def _are_disjoint(wanted: set[Columns | None]) -> bool:
    if WHOLE in wanted:
        return False
    end = 0
    for first, width in sorted(c for c in wanted if c is not None):
        if first < end:
            return False
        end = first + width
    return True
