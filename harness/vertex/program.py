"""A program: operators in order of evaluation, the builder that appends to it, and its stages.

Which operators must wait for children, and which may run earlier or later (Xu et al., "Cavs", ATC
2018, Def. 1 and Prop. 2):
eager: an ancestor of what is scattered that does not depend on what is gathered (W x): may run for
all vertices before the first batch. recurrent: on a path from a gather to a scatter: runs with its
batch.
lazy: needed, but nothing scattered depends on it (outputs; in dF every parameter gradient): may
run for all vertices after the last batch. The same definition serves F (gather to scatter) and dF,
where state gradients come in and gathers' gradients go out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.errors import ConfigError
from harness.vertex.operators import EDGE, OPERATORS, PARAMETER, VERTEX, Node, Shape, check_vectors


class Builder:
    """Appends operators, inferring shapes and sharing equal sub-expressions."""

    def __init__(self, nodes: tuple[Node, ...] = ()) -> None:
        self.nodes: list[Node] = list(nodes)
        self._known = {node: i for i, node in enumerate(self.nodes)}

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def inputs(self, node: int) -> tuple[int, ...]:
        """Ids of a node's inputs."""
        return self.nodes[node].inputs

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

        Raises ConfigError when the operands do not fit the operator.
        """
        operands = [self.nodes[i] for i in inputs]
        rule = OPERATORS[op]
        _check_operands(op, operands)
        if shape is None:
            if rule.shape is None:
                raise ConfigError(f"operator {op} needs a shape")
            shape = rule.shape(operands)
        node = Node(op, inputs, shape, domain or _domain(op, operands), name, index, value)
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def copy(self, node: Node, inputs: Sequence[int], shape: Shape | None) -> int:
        """Append an operator like another, of other operands; no shape: it follows from these."""
        return self.add(
            node.op, *inputs, shape=shape, name=node.name, index=node.index, value=node.value,
            domain=node.domain,
        )  # fmt: skip

    def slice(self, x: int, start: int, width: int) -> int:
        """Columns start to start + width of x; slices of slices are folded."""
        check_vectors([self[x]])
        if start < 0 or width < 1 or start + width > self[x].width:
            raise ConfigError(
                f"columns {start} to {start + width} are not inside a vector of {self[x].width}"
            )
        if width == self[x].width:
            return x
        if self[x].op == "slice":
            return self.slice(self.inputs(x)[0], start + self[x].index, width)
        return self.add("slice", x, shape=(width,), index=start)


def _check_operands(op: str, operands: list[Node]) -> None:
    rule = OPERATORS[op]
    for k, node in enumerate(operands):
        wanted = {rule.parameter_at: "parameter", rule.pull_at: "pull"}.get(k, "value")
        found = node.op if node.op in ("parameter", "pull") else "value"
        if found != wanted:
            raise ConfigError(
                f"operand {k} of {op} is a {found} {node.name}".rstrip()
                + f"; it must be a {wanted}"
            )
        if rule.domain not in (None, node.domain):
            raise ConfigError(
                f"{op} is applied to a value of the {node.domain};"
                f" it takes one of the {rule.domain}"
            )


def _domain(op: str, operands: list[Node]) -> str:
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
    """F of Cavs (Xu et al., ATC 2018), traced once: what one vertex computes.

    scatter: (state, node) pairs published to parents. push: what the outside sees, or None.
    loss: a node of shape (1,) summed over the mini-batch, or None.
    """

    name: str
    nodes: tuple[Node, ...]
    scatter: tuple[tuple[str, int], ...] = ()
    push: int | None = None
    loss: int | None = None

    def gathers(self) -> tuple[int, ...]:
        """Ids of the nodes that read children's states."""
        return tuple(i for i, node in enumerate(self.nodes) if node.op in ("gather", "gather_each"))

    @property
    def shown(self) -> tuple[int, ...]:
        """Nodes that the outside sees."""
        return tuple(i for i in (self.push, self.loss) if i is not None)

    @property
    def results(self) -> frozenset[int]:
        """Nodes that others than nodes read: shown, and scattered."""
        return frozenset((*self.shown, *(i for _, i in self.scatter)))

    def rebuilt(self, nodes: Sequence[Node], new: Callable[[int], int]) -> VertexFunction:
        """Return the same function of other nodes; new: which of these stands for an old one."""
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


class Stage(StrEnum):
    """When an operator runs; UNUSED ones are dropped."""

    EAGER = "eager"
    RECURRENT = "recurrent"
    LAZY = "lazy"
    UNUSED = "unused"


def descendants(nodes: Sequence[Node], roots: Collection[int]) -> set[int]:
    """Nodes that depend on one of the roots, the roots included."""
    found = set(roots)
    for i, node in enumerate(nodes):
        if any(operand in found for operand in node.inputs):
            found.add(i)
    return found


def ancestors(nodes: Sequence[Node], roots: Collection[int]) -> set[int]:
    """Nodes that one of the roots depends on, the roots included."""
    found = set(roots)
    for i in reversed(range(len(nodes))):
        if i in found:
            found.update(nodes[i].inputs)
    return found


def find_consumers(nodes: Sequence[Node], results: Iterable[int]) -> list[list[int]]:
    """Nodes that read each node, of those that the results depend on."""
    used = ancestors(nodes, {*results})
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
) -> tuple[Stage, ...]:
    """Stage of every node.

    incoming: gathers (in dF: state gradients). outgoing: scattered nodes (in dF: gathers'
    gradients).
    other_results: pushed values, losses and parameter gradients.
    """
    dependent = descendants(nodes, incoming)
    needed_by_outgoing = ancestors(nodes, outgoing)
    needed = needed_by_outgoing | ancestors(nodes, other_results)
    stages = []
    for i in range(len(nodes)):
        if i not in needed:
            stages.append(Stage.UNUSED)
        elif i not in needed_by_outgoing:
            stages.append(Stage.LAZY)
        else:
            stages.append(Stage.RECURRENT if i in dependent else Stage.EAGER)
    return tuple(stages)
