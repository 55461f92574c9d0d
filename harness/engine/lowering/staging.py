"""Which nodes of F and dF run in which stage of the engine, after the switches are applied."""

from __future__ import annotations

from dataclasses import dataclass

from harness.vertex.autodiff import Gradient
from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import Stage, VertexFunction, ancestors, find_stages

# Nodes that only name a value; they never become a step of their own.
SOURCES = ("gather", "gather_each", "pull", "parameter", "state_gradient")


@dataclass(frozen=True, slots=True)
class Staging:
    """Node ids by stage, each in order of evaluation; sources, slices and dropped nodes left
    out.
    """

    eager: tuple[int, ...]
    batch: tuple[int, ...]
    lazy: tuple[int, ...]
    backward: tuple[int, ...]
    backward_lazy: tuple[int, ...]

    def stage_of(self) -> dict[int, str]:
        """Name of the stage of every node."""
        return {
            node: name
            for name in ("eager", "batch", "lazy", "backward", "backward_lazy")
            for node in getattr(self, name)
        }


def is_step(node: Node) -> bool:
    """Whether a node computes something (slices are views)."""
    return node.op not in SOURCES and node.op != "slice"


def stage_program(
    function: VertexFunction,
    gradient: Gradient | None,
    nodes: tuple[Node, ...],
    *,
    lazy_batching: bool,
    hoisting: bool,
) -> Staging:
    """Apply the analysis of eager and lazy operators to both halves of a program.

    A function without gathers is ready as a whole, so it runs with its batch and writes its state
    there. An operator that the backward half needs belongs to the forward half if it was traced
    there.
    """
    n_forward = len(function.nodes) if gradient is None else gradient.n_forward
    pushed = [i for i in (function.push, function.loss) if i is not None]
    kept = set(range(n_forward)) & _needed(function, gradient, nodes)
    scattered = [i for _, i in function.scatter]
    stages = find_stages(nodes, function.gathers(), scattered, [*pushed, *kept])
    forward = [i for i in range(len(nodes)) if i in kept and is_step(nodes[i])]
    has_gathers = bool(function.gathers())
    eager = [i for i in forward if stages[i] is Stage.EAGER and hoisting and has_gathers]
    lazy = [i for i in forward if stages[i] is Stage.LAZY and lazy_batching and has_gathers]
    apart = {*eager, *lazy}
    batch = [i for i in forward if i not in apart]
    backward, backward_lazy = _stage_backward(gradient, nodes, lazy_batching)
    return Staging(tuple(eager), tuple(batch), tuple(lazy), tuple(backward), tuple(backward_lazy))


def _needed(
    function: VertexFunction, gradient: Gradient | None, nodes: tuple[Node, ...]
) -> set[int]:
    roots = [i for _, i in function.scatter]
    roots += [i for i in (function.push, function.loss) if i is not None]
    if gradient is not None:
        roots += [i for _, i in gradient.gathers] + list(gradient.sinks)
    return ancestors(nodes, roots)


def _stage_backward(
    gradient: Gradient | None, nodes: tuple[Node, ...], lazy_batching: bool
) -> tuple[list[int], list[int]]:
    if gradient is None:
        return [], []
    incoming = [i for i, node in enumerate(nodes) if node.op == "state_gradient"]
    outgoing = [i for _, i in gradient.gathers]
    stages = find_stages(nodes, incoming, outgoing, gradient.sinks)
    mine = [
        i
        for i in range(gradient.n_forward, len(nodes))
        if stages[i] is not Stage.UNUSED and is_step(nodes[i])
    ]
    lazy = {i for i in mine if stages[i] is Stage.LAZY and lazy_batching}
    lazy |= {i for i in mine if OPERATORS[nodes[i].op].sink and lazy_batching}
    return [i for i in mine if i not in lazy], [i for i in mine if i in lazy]
