"""Programs of operators in order of evaluation, with their builder and their stages.

Stages determine which operators must wait for children, and which can run earlier or later:

- eager: scattered values depend on the operator, but it does not depend on gathered ones (W x); it
  can run for all vertices before the first batch.
- recurrent: on a path from a gather to a scatter; runs with its batch.
- lazy: needed, but no scattered value depends on it (outputs; in dF every parameter gradient); can
  run for all vertices after the last batch.

The same definition applies to F (gather to scatter) and to dF, where state gradients are inputs and
gathers' gradients are outputs.

Source: Xu et al., "Cavs", ATC 2018, Def. 1 and Prop. 2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.vertex.operators import (
    EDGE,
    OPERATORS,
    PARAMETER,
    VERTEX,
    Node,
    Shape,
    check_vectors,
)


class Builder:
    """Builder that appends operators, infers shapes and shares equal subexpressions."""

    def __init__(self, nodes: tuple[Node, ...] = ()) -> None:
        self.nodes: list[Node] = list(nodes)
        self._known = {node: i for i, node in enumerate(self.nodes)}

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def add(
        self,
        op: str,
        *inputs: int,
        shape: Shape | None = None,
        name: str = "",
        index: int = 0,
        value: float = 0.0,
        domain: str | None = None,
    ) -> int:
        """Append one operator (or find its equal) and return its id.

        Raises:
            ConfigError: if the operands do not fit the operator.
        """
        operands = [self.nodes[i] for i in inputs]
        rule = OPERATORS[op]
        _check_operands(op, operands)
        if shape is None:
            if rule.shape is None:
                raise ConfigError(f"operator {op} needs a shape; set it")
            shape = rule.shape(operands)
        node = Node(op, inputs, shape, domain or _infer_domain(op, operands), name, index, value)
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def copy(self, node: Node, inputs: Sequence[int], shape: Shape | None) -> int:
        """Append a copy of an operator with other operands; without shape, it is inferred."""
        return self.add(
            node.op, *inputs, shape=shape, name=node.name, index=node.index, value=node.value,
            domain=node.domain,
        )  # fmt: skip

    def slice(self, x: int, start: int, width: int) -> int:
        """Return columns start to start + width of x; slices of slices are folded."""
        check_vectors([self[x]])
        if start < 0 or width < 1 or start + width > self[x].width:
            raise ConfigError(
                f"columns {start} to {start + width} exceed a vector of width {self[x].width}"
            )
        if width == self[x].width:
            return x
        if self[x].op == "slice":
            return self.slice(self[x].inputs[0], start + self[x].index, width)
        return self.add("slice", x, shape=(width,), index=start)


def _check_operands(op: str, operands: list[Node]) -> None:
    rule = OPERATORS[op]
    for k, node in enumerate(operands):
        wanted = {rule.parameter_at: "parameter", rule.pull_at: "pull"}.get(k, "value")
        kind = node.op if node.op in ("parameter", "pull") else "value"
        if kind != wanted:
            raise ConfigError(
                f"operand {k} of {op}: expected a {wanted}, got a {kind} {node.name}".rstrip()
            )
        if rule.domain not in (None, node.domain):
            raise ConfigError(
                f"{op}: expected a value of the {rule.domain}, got one of the {node.domain}"
            )


def _infer_domain(op: str, operands: list[Node]) -> str:
    if op == "sum_edges":
        return VERTEX
    if OPERATORS[op].sink or op == "parameter":
        return PARAMETER
    domains = {node.domain for node in operands} - {PARAMETER}
    if domains == {VERTEX, EDGE}:
        raise ConfigError(
            f"operator {op} mixes a value of the vertex with one of its edges; use spread first"
        )
    return domains.pop() if domains else VERTEX


@dataclass(frozen=True, slots=True)
class VertexFunction:
    """Vertex function F of Cavs, traced once: the computation of one vertex.

    Attributes:
        scatter: (state, node) pairs that parents can gather.
        loss: node of shape (1,) that is summed over the mini-batch, or None.

    Source: Xu et al., ATC 2018.
    """

    name: str
    nodes: tuple[Node, ...]
    scatter: tuple[tuple[str, int], ...] = ()
    push: int | None = None
    loss: int | None = None

    def find_gathers(self) -> tuple[int, ...]:
        """Return the ids of the nodes that read children's states."""
        return tuple(i for i, node in enumerate(self.nodes) if node.op in ("gather", "gather_each"))

    @property
    def shown(self) -> tuple[int, ...]:
        """Nodes of the pushed value and the loss, as far as they exist."""
        return tuple(i for i in (self.push, self.loss) if i is not None)

    @property
    def results(self) -> frozenset[int]:
        """Nodes that are used outside the function: shown or scattered ones."""
        return frozenset((*self.shown, *(i for _, i in self.scatter)))

    def replace_nodes(self, nodes: Sequence[Node], new: Callable[[int], int]) -> VertexFunction:
        """Return the same function with other nodes.

        Args:
            new: maps an old node's id to the new one.
        """
        return replace(
            self,
            nodes=tuple(nodes),
            scatter=tuple((state, new(i)) for state, i in self.scatter),
            push=None if self.push is None else new(self.push),
            loss=None if self.loss is None else new(self.loss),
        )

    @property
    def arity(self) -> int:
        """Number of slots that are gathered by slot."""
        slots = [node.index for node in self.nodes if node.op == "gather"]
        return max(slots, default=-1) + 1


class OperatorStage(StrEnum):
    """Stage in which an operator runs; UNUSED operators are removed."""

    EAGER = "eager"
    RECURRENT = "recurrent"
    LAZY = "lazy"
    UNUSED = "unused"


def find_descendants(nodes: Sequence[Node], roots: Collection[int]) -> set[int]:
    """Return the nodes that depend on one of the roots, the roots included."""
    reached = set(roots)
    for i, node in enumerate(nodes):
        if any(operand in reached for operand in node.inputs):
            reached.add(i)
    return reached


def find_ancestors(nodes: Sequence[Node], roots: Collection[int]) -> set[int]:
    """Return the nodes that one of the roots depends on, the roots included."""
    reached = set(roots)
    for i in reversed(range(len(nodes))):
        if i in reached:
            reached.update(nodes[i].inputs)
    return reached


def keep_ancestors(
    nodes: Sequence[Node], roots: Collection[int]
) -> tuple[tuple[Node, ...], dict[int, int]]:
    """Return the nodes that the roots depend on, renumbered in the same order, and their new ids.

    The new ids are by old id.
    """
    needed = sorted(find_ancestors(nodes, roots))
    new = {old: k for k, old in enumerate(needed)}
    kept = (replace(nodes[old], inputs=tuple(new[k] for k in nodes[old].inputs)) for old in needed)
    return tuple(kept), new


def find_consumers(nodes: Sequence[Node], results: Iterable[int]) -> list[list[int]]:
    """Return the consumers of each node among the nodes that the results depend on."""
    used = find_ancestors(nodes, {*results})
    consumers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        if i in used:
            for operand in dict.fromkeys(node.inputs):
                consumers[operand].append(i)
    return consumers


def find_stages(
    nodes: Sequence[Node],
    incoming: Collection[int],
    outgoing: Collection[int],
    other_results: Collection[int],
) -> tuple[OperatorStage, ...]:
    """Return the stage of every node.

    Args:
        incoming: gathers (in dF: state gradients).
        outgoing: scattered nodes (in dF: gathers' gradients).
        other_results: pushed values, losses and parameter gradients.
    """
    dependent = find_descendants(nodes, incoming)
    needed_by_outgoing = find_ancestors(nodes, outgoing)
    needed = needed_by_outgoing | find_ancestors(nodes, other_results)
    stages = []
    for i in range(len(nodes)):
        if i not in needed:
            stages.append(OperatorStage.UNUSED)
        elif i not in needed_by_outgoing:
            stages.append(OperatorStage.LAZY)
        else:
            stages.append(OperatorStage.RECURRENT if i in dependent else OperatorStage.EAGER)
    return tuple(stages)
