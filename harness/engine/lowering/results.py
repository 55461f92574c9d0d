"""Values of a program that others than its own operators read."""

from __future__ import annotations

from dataclasses import dataclass

from harness.vertex.autodiff import Gradient
from harness.vertex.program import VertexFunction


@dataclass(frozen=True, slots=True)
class Results:
    """Values that others than nodes read.

    scatter: (state, node) pairs. shown: nodes that the outside sees.
    gradients: (gather node, node of its gradient) pairs, which are given back to children.
    """

    scatter: tuple[tuple[str, int], ...]
    shown: frozenset[int]
    gradients: tuple[tuple[int, int], ...]

    @property
    def scattered(self) -> frozenset[int]:
        """Nodes whose values are states."""
        return frozenset(i for _, i in self.scatter)

    @property
    def given_back(self) -> frozenset[int]:
        """Nodes whose values are gradients of children's states."""
        return frozenset(i for _, i in self.gradients)

    @property
    def all(self) -> frozenset[int]:
        """All of these nodes."""
        return self.scattered | self.shown | self.given_back


def find_results(function: VertexFunction, gradient: Gradient | None) -> Results:
    """What is read of a vertex function, and of its gradient where there is one."""
    shown = frozenset(i for i in (function.push, function.loss) if i is not None)
    return Results(function.scatter, shown, gradient.gathers if gradient is not None else ())
