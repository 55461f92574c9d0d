"""Vertex functions of single operators, and their types according to DyNet's signatures.

They turn operator granularity into an ordinary model: a vertex is one operator application, and its
state is the computed value, named after its width ("v256"). The engine therefore needs no second
mode. It launches a batch of several shapes, which signatures of componentwise operators permit,
once per shape. Nodes of a vertex function that are a single node in DyNet (affine transforms,
parameters) form one operator. A function of a variable number of children is unrolled for each
number that occurs.

Source: Neubig et al., NIPS 2017, appendix A, for the signatures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynbatch.harness.values.graph import UNBATCHABLE
from dynbatch.harness.vertex.operators import EDGE, OPERATORS, Node
from dynbatch.harness.vertex.program import Builder, VertexFunction, find_ancestors

SOURCES = ("gather", "pull", "parameter")
PULLED = "pulled"  # an operator's only external input, whatever its vertex calls it


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Origin of a value: an operator of the same vertex, or a child's state."""

    local: int | None = None
    slot: int = 0
    state: str = ""


@dataclass(frozen=True, slots=True)
class Application:
    """Operator inside a vertex: its function, its schedule type, its operands and its pull."""

    function: int
    type: int
    arguments: tuple[ValueSource, ...]
    pull: str | None


@dataclass(frozen=True, slots=True)
class Template:
    """Operators of a vertex in order, and the origins of its states and of the pushed value.

    Attributes:
        arity: number of children that it reads by slot.
    """

    name: str
    applications: tuple[Application, ...]
    states: dict[str, ValueSource]
    pushed: ValueSource | None
    arity: int


@dataclass(slots=True)
class FunctionTable:
    """Functions by id, and their schedule types; ids follow the order of first appearance.

    A type has the id of the first function with its signature. Componentwise operators on values of
    different shapes are several functions of one type.
    """

    functions: dict[int, VertexFunction] = field(default_factory=dict)
    ids: dict[tuple[object, ...], int] = field(default_factory=dict)
    types: dict[tuple[object, ...], int] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: ["unbatchable"])
    cheap: list[bool] = field(default_factory=lambda: [True])

    def make_template(self, function: VertexFunction) -> Template:
        """Split a vertex function that reads children only by slot into operator applications."""
        return _Splitter(function, self).split()

    def add(self, key: tuple[object, ...], function: VertexFunction, cheap: bool) -> int:
        """Return the id of the function with this key; add the function if it is new."""
        if key not in self.ids:
            self.ids[key] = len(self.names)
            self.functions[self.ids[key]] = function
            self.names.append(function.name)
            self.cheap.append(cheap)
        return self.ids[key]


class _Splitter:
    def __init__(self, function: VertexFunction, table: FunctionTable) -> None:
        function = _add_computed_loss(function)
        self.function, self.nodes, self.table = function, function.nodes, table
        self.groups = group_operators(function)
        self.read = {k for node in self.nodes for k in node.inputs}
        self.read |= {i for i in (*dict(function.scatter).values(), function.push) if i is not None}
        self.at = {i: position for position, i in enumerate(self.groups)}

    def split(self) -> Template:
        push = self.function.push
        return Template(
            self.function.name,
            tuple(self._make_application(group) for group in self.groups.values()),
            {state: self._find_source(i) for state, i in self.function.scatter},
            None if push is None else self._find_source(push),
            self.function.arity,
        )

    def _find_source(self, i: int) -> ValueSource:
        if self.nodes[i].op == "gather":
            return ValueSource(slot=self.nodes[i].index, state=self.nodes[i].name)
        return ValueSource(local=self.at[i])

    def _make_application(self, group: tuple[int, ...]) -> Application:
        values = [
            k
            for i in group
            for k in self.nodes[i].inputs
            if k not in group and self.nodes[k].op not in ("parameter", "pull")
        ]
        pulls = [
            self.nodes[k].name
            for i in group
            for k in self.nodes[i].inputs
            if self.nodes[k].op == "pull"
        ]
        key = self._make_function_key(group, values)
        function = self.table.add(
            key,
            self._build_function(group, values),
            not any(OPERATORS[self.nodes[i].op].heavy for i in group),
        )
        signature, types = self._make_signature(group, key), self.table.types
        return Application(
            function=function,
            type=UNBATCHABLE if signature is None else types.setdefault(signature, function),
            arguments=tuple(map(self._find_source, values)),
            pull=pulls[0] if pulls else None,
        )

    def _make_function_key(
        self, group: tuple[int, ...], values: Sequence[int]
    ) -> tuple[object, ...]:
        """Return the key that two applications must have in common to share a function.

        It contains the operators' own rules, all shapes, and whether the result is a loss or read.
        """
        parts = [
            (self.nodes[i].op, self.nodes[i].shape, *self._select_facts(self.nodes[i]))
            for i in group
        ]
        shapes = [self.nodes[k].shape for k in values]
        return (*parts, *shapes, group[-1] == self.function.loss, self._is_read(group[-1]))

    def _make_signature(
        self, group: tuple[int, ...], key: tuple[object, ...]
    ) -> tuple[object, ...] | None:
        """Return what two applications must have in common to share a batch; None: nothing can.

        DyNet batches componentwise operators of the same number of operands whatever their shapes.
        """
        node = self.nodes[group[-1]]
        operator = OPERATORS[node.op]
        if operator.signature is None:
            return None
        if operator.is_componentwise:
            return (node.op, len(node.inputs), *self._select_facts(node))
        return key

    def _select_facts(self, node: Node) -> list[object]:
        """Return the values of the properties in an operator's signature.

        Operators that DyNet does not batch share only a function, for which all must be equal.
        """
        operator = OPERATORS[node.op]
        facts = {"index": node.index, "value": node.value, "shape": node.shape}
        if operator.parameter_at is not None:
            facts["parameter"] = self.nodes[node.inputs[operator.parameter_at]].name
        wanted = facts if operator.signature is None else operator.signature
        return [facts[fact] for fact in wanted]

    def _is_read(self, i: int) -> bool:
        """Return True if a value must be a state; a loss usually has no readers."""
        return i != self.function.loss or i in self.read

    def _build_function(self, group: tuple[int, ...], values: Sequence[int]) -> VertexFunction:
        b = Builder()
        operands = iter(
            b.add("gather", shape=self.nodes[k].shape, name=state_name(self.nodes[k]), index=slot)
            for slot, k in enumerate(values)
        )
        made: dict[int, int] = {}
        for i in group:
            node, inputs = self.nodes[i], []
            for k in node.inputs:
                source = self.nodes[k]
                if k in made:
                    inputs.append(made[k])
                elif source.op in ("parameter", "pull"):
                    name = PULLED if source.op == "pull" else source.name
                    inputs.append(b.add(source.op, shape=source.shape, name=name))
                else:
                    inputs.append(next(operands))
            made[i] = b.add(node.op, *inputs, shape=node.shape, index=node.index, value=node.value)
        last, result = group[-1], made[group[-1]]
        return VertexFunction(
            self._name(group, len(values)),
            tuple(b.nodes),
            ((state_name(self.nodes[last]), result),) if self._is_read(last) else (),
            None,
            result if last == self.function.loss else None,
        )

    def _name(self, group: tuple[int, ...], n_values: int) -> str:
        """Return the operator with the details that distinguish it; not always the shapes."""
        last = self.nodes[group[-1]]
        if last.op == "sum":
            return f"sum of {n_values}"
        inputs = [self.nodes[k] for i in group for k in self.nodes[i].inputs]
        parts = [node.name for node in inputs if node.op == "parameter"]
        if last.op == "slice":
            parts.append(f"{last.index}:{last.index + last.width}")
        if last.op in ("scale", "shift"):
            parts.append(f"{last.value:g}")
        whole = "parameter" if self.nodes[group[0]].op == "zeros" else "affine"
        return " ".join([last.op if len(group) == 1 else whole, *parts])


def _add_computed_loss(function: VertexFunction) -> VertexFunction:
    """Add an operator for a loss that is a child's state, as only an operator can be the loss."""
    if function.loss is None or function.nodes[function.loss].op != "gather":
        return function
    b = Builder(function.nodes)
    loss = b.add("scale", function.loss, value=1.0)
    return replace(function, nodes=tuple(b.nodes), loss=loss)


def state_name(node: Node) -> str:
    """Return the name of the state for values of a node's width."""
    return f"v{node.width}"


def group_operators(function: VertexFunction) -> Mapping[int, tuple[int, ...]]:
    """Return each operator of a function with the nodes it comprises, itself last.

    Operators that are never read are omitted. A bias comprises the matmuls that it is added to, or
    their sum (b + W x + U y, DyNet's affine_transform), if nothing else reads them; a bias on zeros
    is a parameter.
    """
    nodes = function.nodes
    results = [*dict(function.scatter).values(), *function.shown]
    used = sorted(find_ancestors(nodes, results))
    readers = Counter([k for i in used for k in nodes[i].inputs] + results)
    groups = {
        i: (*_find_bias_inputs(nodes, readers, nodes[i]), i)
        for i in used
        if nodes[i].op not in SOURCES
    }
    taken_in = Counter(k for group in groups.values() for k in group[:-1])
    return {i: group for i, group in groups.items() if taken_in[i] < readers[i]}


def _find_bias_inputs(nodes: tuple[Node, ...], readers: Mapping[int, int], node: Node) -> list[int]:
    if node.op != "bias":
        return []
    target = node.inputs[0]
    return [target] if nodes[target].op == "zeros" else _find_products(nodes, readers, target)


def _find_products(nodes: tuple[Node, ...], readers: Mapping[int, int], i: int) -> list[int]:
    """Return the matmuls whose sum is node i, and the additions; empty for any other node."""
    operator = OPERATORS[nodes[i].op]
    if readers[i] != 1:
        return []
    if operator.heavy and operator.parameter_at is not None:
        return [i]
    parts = (
        [_find_products(nodes, readers, k) for k in nodes[i].inputs] if nodes[i].op == "add" else []
    )
    return [*(k for part in parts for k in part), i] if parts and all(parts) else []


def is_variadic(function: VertexFunction) -> bool:
    """Return True if a function computes a value for each of its children."""
    return any(node.domain == EDGE for node in function.nodes)


def unroll(function: VertexFunction, n_edges: int) -> VertexFunction:
    """Unroll a vertex function for a vertex with n_edges children.

    A value of an edge becomes one value per child, and a value spread to the edges is the vertex's
    own. A sum over the edges becomes a single n-ary sum, as in a program that builds its graph
    operator by operator (DyNet). The sum over one child is that child's value; over none it is
    zero.
    """
    b = Builder()
    at: list[tuple[int, ...]] = []  # new ids of each old node; of an edge's node one per child
    for node in function.nodes:
        if node.domain == EDGE and node.op != "spread":
            at.append(tuple(_copy_for_child(b, node, at, k) for k in range(n_edges)))
        elif node.op == "spread":
            at.append(at[node.inputs[0]] * n_edges)
        elif node.op == "sum_edges":
            at.append((_sum_nodes(b, node, at[node.inputs[0]]),))
        else:
            at.append((_copy_node(b, node, tuple(at[k][0] for k in node.inputs)),))
    return function.replace_nodes(b.nodes, lambda i: at[i][0])


def _copy_for_child(b: Builder, node: Node, at: list[tuple[int, ...]], child: int) -> int:
    if node.op == "gather_each":
        return b.add("gather", shape=node.shape, name=node.name, index=child)
    inputs = (at[k] for k in node.inputs)
    return _copy_node(b, node, tuple(ids[child] if len(ids) > 1 else ids[0] for ids in inputs))


def _copy_node(b: Builder, node: Node, inputs: tuple[int, ...]) -> int:
    if node.op == "slice":
        return b.slice(inputs[0], node.index, node.width)
    return b.add(
        node.op, *inputs, shape=node.shape, name=node.name, index=node.index, value=node.value
    )


def _sum_nodes(b: Builder, node: Node, parts: tuple[int, ...]) -> int:
    if not parts:
        return b.add("zeros", shape=node.shape)
    return parts[0] if len(parts) == 1 else b.add("sum", *parts)
