"""One vertex function for each of a model's operators, shared as DyNet's signatures allow (spec
2.2).

This turns operator granularity into an ordinary model: a vertex is one operator application, its
state the value it computes, named after its width ("v256"), so that the engine needs no second
mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.errors import ConfigError
from harness.graph import UNBATCHABLE
from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import Builder, VertexFunction

SOURCES = ("gather", "pull", "parameter")
PULLED = "pulled"  # an operator's only external input, whatever its vertex calls it


@dataclass(frozen=True, slots=True)
class Argument:
    """Where an operator's operand comes from: an operator of the same vertex, or a child's
    state.
    """

    local: int | None = None
    slot: int = 0
    state: str = ""


@dataclass(frozen=True, slots=True)
class Application:
    """One operator inside a vertex: its function, its schedule type, its operands, its pull."""

    function: int
    type: int
    arguments: tuple[Argument, ...]
    pull: str | None


@dataclass(frozen=True, slots=True)
class Template:
    """The operators of one vertex in order; where each state is computed, and the pushed value."""

    applications: tuple[Application, ...]
    state_at: dict[str, int]
    pushed_at: int | None


@dataclass(slots=True)
class FunctionTable:
    """Functions by id and their schedule types; ids are given by first appearance."""

    functions: dict[int, VertexFunction] = field(default_factory=dict)
    ids: dict[tuple[object, ...], int] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: ["unbatchable"])
    cheap: list[bool] = field(default_factory=lambda: [True])

    def template(self, function: VertexFunction) -> Template:
        """Split one vertex function into operator applications.

        Raises ConfigError for what has no operator-granular form.
        """
        return _Splitter(function, self).split()

    def add(self, key: tuple[object, ...], function: VertexFunction, cheap: bool) -> int:
        """Id of the function with this signature."""
        if key not in self.ids:
            self.ids[key] = len(self.names)
            self.functions[self.ids[key]] = function
            self.names.append(function.name)
            self.cheap.append(cheap)
        return self.ids[key]


class _Splitter:
    def __init__(self, function: VertexFunction, table: FunctionTable) -> None:
        self.function, self.nodes, self.table = function, function.nodes, table
        self.affine = _affine_products(function)
        self.at: dict[int, int] = {}  # node -> position among the applications

    def split(self) -> Template:
        applications: list[Application] = []
        for i, node in enumerate(self.nodes):
            if node.op == "gather_each" or node.domain == "edge":
                raise ConfigError(
                    f"granularity=operator cannot express the variadic gather of"
                    f" {self.function.name}; use granularity=vertex"
                )
            if node.op in SOURCES or i in self.affine.values():
                continue
            self.at[i] = len(applications)
            applications.append(self._application(i, node))
        return Template(
            tuple(applications),
            {state: self._computed(i) for state, i in self.function.scatter},
            self.at.get(self.function.push) if self.function.push is not None else None,
        )

    def _computed(self, i: int) -> int:
        if i not in self.at:
            raise ConfigError(
                f"granularity=operator needs every state of {self.function.name} to be computed;"
                f" {self.nodes[i].op} only passes one on"
            )
        return self.at[i]

    def _application(self, i: int, node: Node) -> Application:
        chain = [self.nodes[self.affine[i]], node] if i in self.affine else [node]
        operands = [k for part in chain for k in part.inputs if self.nodes[k].op != "parameter"]
        operands = [k for k in operands if k not in self.affine.values()]
        values = [k for k in operands if self.nodes[k].op != "pull"]
        pulls = [self.nodes[k].name for k in operands if self.nodes[k].op == "pull"]
        is_loss = i == self.function.loss
        cheap = not any(OPERATORS[part.op].heavy for part in chain)
        key = self._signature(chain, values, is_loss)
        function = self.table.add(key, self._function(chain, values, is_loss), cheap)
        return Application(
            function=function,
            type=UNBATCHABLE if OPERATORS[node.op].signature is None else function,
            arguments=tuple(self._argument(k) for k in values),
            pull=pulls[0] if pulls else None,
        )

    def _argument(self, k: int) -> Argument:
        node = self.nodes[k]
        if node.op == "gather":
            return Argument(slot=node.index, state=node.name)
        return Argument(local=self.at[k])

    def _signature(
        self, chain: Sequence[Node], values: Sequence[int], is_loss: bool
    ) -> tuple[object, ...]:
        """What must be equal for two applications to share a function.

        The operators' own rules, and all shapes: DyNet lets elementwise kernels mix them, but
        equal ones occur here. An unbatchable operator has a function to share, if no batch.
        """
        shapes = [self.nodes[k].shape for k in values]
        return (*(self._key(part) for part in chain), *shapes, is_loss)

    def _key(self, node: Node) -> tuple[object, ...]:
        operator = OPERATORS[node.op]
        facts = {"index": node.index, "value": node.value, "shape": node.shape}
        if operator.parameter_at is not None:
            facts["parameter"] = self.nodes[node.inputs[operator.parameter_at]].name
        return (node.op, node.shape, *(facts[fact] for fact in operator.signature or ()))

    def _function(
        self, chain: Sequence[Node], values: Sequence[int], is_loss: bool
    ) -> VertexFunction:
        b = Builder()
        operands = iter(
            b.add("gather", shape=self.nodes[k].shape, name=state_name(self.nodes[k]), index=slot)
            for slot, k in enumerate(values)
        )
        result: int | None = None
        for part in chain:
            inputs = []
            for k in part.inputs:
                source = self.nodes[k]
                if source.op in ("parameter", "pull"):
                    name = PULLED if source.op == "pull" else source.name
                    inputs.append(b.add(source.op, shape=source.shape, name=name))
                else:
                    inputs.append(next(operands) if part is chain[0] else int(result or 0))
            result = b.add(part.op, *inputs, shape=part.shape, index=part.index, value=part.value)
        assert result is not None
        scatter = () if is_loss else ((state_name(chain[-1]), result),)
        loss = result if is_loss else None
        name = "affine" if len(chain) > 1 else chain[0].op
        return VertexFunction(name, tuple(b.nodes), scatter, None, loss)


def state_name(node: Node) -> str:
    """State that holds values of a node's width."""
    return f"v{node.width}"


def _affine_products(function: VertexFunction) -> dict[int, int]:
    """bias node -> the product that it alone uses; together they are DyNet's affine_transform."""
    uses = [k for node in function.nodes for k in node.inputs]
    kept = {i for _, i in function.scatter} | {function.push, function.loss}
    return {
        i: node.inputs[0]
        for i, node in enumerate(function.nodes)
        if node.op == "bias"
        and function.nodes[node.inputs[0]].op == "matmul"
        and uses.count(node.inputs[0]) == 1
        and node.inputs[0] not in kept
    }
