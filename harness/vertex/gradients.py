"""Gradient rules of the operators: what to append to a program for the gradients of the inputs.

Of every rule: b, the program; node, the operator's own id; dy, the id of its result's gradient. It
returns the ids of the gradients of the inputs, None where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Operand(Protocol):
    """What a gradient rule reads of a node."""

    @property
    def name(self) -> str:
        """Name of a parameter."""

    @property
    def width(self) -> int:
        """Number of elements."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape per vertex, or of the parameter itself."""

    @property
    def value(self) -> float:
        """The constant of scale and shift."""


class Appender(Protocol):
    """What a gradient rule needs of the program that it appends to."""

    def __getitem__(self, node: int) -> Operand:
        """Return a node by its id."""

    def inputs(self, node: int) -> tuple[int, ...]:
        """Return the ids of a node's inputs."""

    def add(
        self,
        op: str,
        *inputs: int,
        shape: tuple[int, ...] | None = None,
        name: str = "",
        index: int = 0,
        value: float = 0.0,
        domain: str | None = None,
    ) -> int:
        """Append an operator and return its id."""

    def slice(self, x: int, start: int, width: int) -> int:
        """Append a view of some columns and return its id."""


GradientRule = Callable[[Appender, int, int], Sequence[int | None]]


def of_add(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x + y): dy for both."""
    return dy, dy


def of_sum(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x + y + ...): dy for each."""
    return [dy] * len(b.inputs(node))


def of_sub(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x - y): dy and -dy."""
    return dy, b.add("neg", dy)


def of_mul(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x y): dy y and dy x."""
    x, y = b.inputs(node)
    return b.add("mul", dy, y), b.add("mul", dy, x)


def of_div(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x / y): dy / y and -(dy / y) (x / y)."""
    _, y = b.inputs(node)
    dx = b.add("div", dy, y)
    return dx, b.add("neg", b.add("mul", dx, node))


def from_output(op: str) -> GradientRule:
    """The rule that appends `op` to dy and the operator's own result."""
    return lambda b, node, dy: (b.add(op, dy, node),)


def of_square(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x^2): 2 x dy."""
    (x,) = b.inputs(node)
    return (b.add("mul", dy, b.add("scale", x, value=2.0)),)


def of_sqrt(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(sqrt x): dy / (2 sqrt x)."""
    return (b.add("scale", b.add("div", dy, node), value=0.5),)


def of_matmul(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x W): dy W^T, and x^T dy summed over all vertices."""
    x, weight = b.inputs(node)
    return b.add("matmul_transposed", dy, weight), b.add("outer_sum", x, dy, name=b[weight].name)


def of_apply(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x A) of a vertex's own matrix: dy A^T and x^T dy."""
    x, matrix = b.inputs(node)
    return b.add("apply_transposed", dy, matrix), b.add("outer", x, dy)


def of_bias(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(x + b): dy, and dy summed over all vertices."""
    _, bias = b.inputs(node)
    return dy, b.add("vertex_sum", dy, name=b[bias].name)


def of_lookup(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(table[row]): dy added to that row; a row has no gradient."""
    table, row = b.inputs(node)
    return b.add("row_sum", row, dy, name=b[table].name), None


def of_concat(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(concat(x, y, ...)): each one's columns of dy."""
    grads, start = [], 0
    for x in b.inputs(node):
        grads.append(b.slice(dy, start, b[x].width))
        start += b[x].width
    return grads


def of_pick(b: Appender, node: int, dy: int) -> Sequence[int | None]:
    """d(-log softmax(x)[label]): (softmax(x) - one_hot(label)) dy; a label has no gradient."""
    logits, label = b.inputs(node)
    return b.add("softmax_minus_one_hot", logits, label, dy), None
