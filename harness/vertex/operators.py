"""The operator table: for every operator its shape rule, gradient rule and DyNet signature.

A node's shape is that of one vertex (or of one edge); the batch dimension is the engine's business.
A value is a vector, or a matrix (MV-RNN's states): products and biases then work row by row.
Gradient rules append to a program b what the gradients of an operator's inputs are. node: the
operator's own id; dy: the id of its result's gradient. They return ids, None for no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import ConfigError

if TYPE_CHECKING:
    from harness.vertex.program import Builder


GradientRule = Callable[["Builder", int, int], Sequence[int | None]]


def of_add(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x + y): dy for both."""
    return dy, dy


def of_sum(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x + y + ...): dy for each."""
    return [dy] * len(b.inputs(node))


def of_sub(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x - y): dy and -dy."""
    return dy, b.add("neg", dy)


def of_mul(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x y): dy y and dy x."""
    x, y = b.inputs(node)
    return b.add("mul", dy, y), b.add("mul", dy, x)


def of_div(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x / y): dy / y and -(dy / y) (x / y)."""
    _, y = b.inputs(node)
    dx = b.add("div", dy, y)
    return dx, b.add("neg", b.add("mul", dx, node))


def from_output(op: str) -> GradientRule:
    """The rule that appends `op` to dy and the operator's own result."""
    return lambda b, node, dy: (b.add(op, dy, node),)


def of_square(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x^2): 2 x dy."""
    (x,) = b.inputs(node)
    return (b.add("mul", dy, b.add("scale", x, value=2.0)),)


def of_sqrt(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(sqrt x): dy / (2 sqrt x)."""
    return (b.add("scale", b.add("div", dy, node), value=0.5),)


def of_matmul(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x W): dy W^T, and x^T dy summed over all vertices."""
    x, weight = b.inputs(node)
    return b.add("matmul_transposed", dy, weight), b.add("outer_sum", x, dy, name=b[weight].name)


def of_apply(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x A) of a vertex's own matrix: dy A^T and x^T dy."""
    x, matrix = b.inputs(node)
    return b.add("apply_transposed", dy, matrix), b.add("outer", x, dy)


def of_bias(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(x + b): dy, and dy summed over all vertices."""
    _, bias = b.inputs(node)
    return dy, b.add("vertex_sum", dy, name=b[bias].name)


def of_lookup(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(table[row]): dy added to that row; a row has no gradient."""
    table, row = b.inputs(node)
    return b.add("row_sum", row, dy, name=b[table].name), None


def of_concat(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(concat(x, y, ...)): each one's columns of dy."""
    grads, start = [], 0
    for x in b.inputs(node):
        grads.append(b.slice(dy, start, b[x].width))
        start += b[x].width
    return grads


def of_pick(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """d(-log softmax(x)[label]): (softmax(x) - one_hot(label)) dy; a label has no gradient."""
    logits, label = b.inputs(node)
    return b.add("softmax_minus_one_hot", logits, label, dy), None


Shape = tuple[int, ...]
VERTEX, EDGE, PARAMETER = "vertex", "edge", "parameter"
LAYER_NORM_EPSILON = 1e-12  # added to a variance, as in BERT's release


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of a program.

    inputs: node ids. shape: per vertex (or edge, or of the parameter itself), by `domain`.
    name: of the parameter, pull or state. index: slot of a gather, first column of a slice, number
    of heads.
    value: the constant of scale and shift.
    """

    op: str
    inputs: tuple[int, ...] = ()
    shape: Shape = ()
    domain: str = VERTEX
    name: str = ""
    index: int = 0
    value: float = 0.0

    @property
    def width(self) -> int:
        """Number of elements of the shape."""
        return math.prod(self.shape)


ShapeRule = Callable[[Sequence[Node]], Shape]


@dataclass(frozen=True, slots=True)
class Operator:
    """Rules of one operator.

    shape: from the input nodes (None: given when the node is built).
    gradient: (builder, node id, id of dy) -> ids of the gradients of the inputs, None where there
    is none.
    elementwise: reads and writes position by position, so that it may be fused.
    sink: sums over all vertices into a parameter's gradient; such a node is lazy by nature.
    signature: what must be equal, besides operator and operands' shapes, for two applications to
    share a kernel in DyNet (Neubig et al., NIPS 2017, appendix A): "parameter" (which one),
    "index", "value" or "shape" (its own). None: DyNet has no batched kernel (signature 0).
    heavy: deferred by DyNet's agenda on ties (dynet/exec.cc).
    parameter_at, pull_at: which operand is a parameter, or pulled; such values can be nothing else.
    domain: of the operand, where the operator works on one only.
    """

    shape: ShapeRule | None = None
    gradient: GradientRule | None = None
    elementwise: bool = False
    sink: bool = False
    signature: tuple[str, ...] | None = ()
    heavy: bool = False
    parameter_at: int | None = None
    pull_at: int | None = None
    domain: str | None = None


def _same(inputs: Sequence[Node]) -> Shape:
    shapes = {node.shape for node in inputs}
    if len(shapes) != 1:
        raise ConfigError(
            f"operands have shapes {[node.shape for node in inputs]}; they must be equal"
        )
    return inputs[0].shape


def _scalar(inputs: Sequence[Node]) -> Shape:
    check_vectors(inputs[:1])
    return (1,)


def check_vectors(inputs: Sequence[Node]) -> None:
    """Raise ConfigError for a matrix, whose elements have no order among columns."""
    for node in inputs:
        if len(node.shape) != 1:
            raise ConfigError(f"a matrix of shape {node.shape} is given; give a vector")


def _first(inputs: Sequence[Node]) -> Shape:
    return inputs[0].shape


def _row(inputs: Sequence[Node]) -> Shape:
    table, _ = inputs
    if len(table.shape) != 2:
        raise ConfigError(
            f"cannot look up rows of a parameter of shape {table.shape}; use a matrix"
        )
    return table.shape[1:]


def _joined(inputs: Sequence[Node]) -> Shape:
    check_vectors(inputs)
    return (sum(node.width for node in inputs),)


def _matmul_shape(inputs: Sequence[Node], rows: int = 0, columns: int = 1) -> Shape:
    x, weight = inputs
    if len(weight.shape) != 2 or x.shape[-1:] != (weight.shape[rows],):
        raise ConfigError(
            f"cannot multiply a value of shape {x.shape} with a {weight.shape} matrix"
        )
    return (*x.shape[:-1], weight.shape[columns])


def _apply_shape(inputs: Sequence[Node], rows: int = 0, columns: int = 1) -> Shape:
    check_vectors(inputs[:1])
    return _matmul_shape(inputs, rows, columns)


def _outer_shape(inputs: Sequence[Node]) -> Shape:
    """Of x^T y, summed over the rows where x and y are matrices."""
    return (inputs[0].shape[-1], inputs[1].shape[-1])


def _biased(inputs: Sequence[Node]) -> Shape:
    x, bias = inputs
    if bias.shape != x.shape[-1:]:
        raise ConfigError(f"cannot add a bias of shape {bias.shape} to {x.shape}")
    return x.shape


def _scaled(inputs: Sequence[Node]) -> Shape:
    x, gain = inputs
    if gain.shape != x.shape[-1:]:
        raise ConfigError(f"cannot scale rows of {x.shape} by a gain of shape {gain.shape}")
    return x.shape


OPERATORS: dict[str, Operator] = {
    # What enters a vertex function.
    "gather": Operator(),
    "gather_each": Operator(),
    "pull": Operator(),
    "parameter": Operator(),
    "zeros": Operator(signature=None),
    "ones": Operator(signature=None),
    "state_gradient": Operator(),
    # Linear algebra with shared parameters.
    "matmul": Operator(
        _matmul_shape, of_matmul, signature=("parameter",), heavy=True, parameter_at=1
    ),
    "matmul_transposed": Operator(lambda inputs: _matmul_shape(inputs, 1, 0), parameter_at=1),
    "bias": Operator(_biased, of_bias, elementwise=True, signature=("parameter",), parameter_at=1),
    "lookup": Operator(_row, of_lookup, signature=("parameter",), parameter_at=0, pull_at=1),
    # x A, A a value of the vertex itself: DyNet batches products of one node's matrix only.
    "apply": Operator(_apply_shape, of_apply, signature=None, heavy=True),
    "apply_transposed": Operator(lambda inputs: _apply_shape(inputs, 1, 0)),
    "outer": Operator(_outer_shape),
    # Attention (harness.vertex.tracing); inference only. DyNet has no batched kernel for products
    # of two values, nor for the parts of its layer_norm.
    "score_heads": Operator(None, signature=None, heavy=True),
    "mix_heads": Operator(None, signature=None, heavy=True),
    "softmax": Operator(_first, signature=("shape",)),
    "layer_norm": Operator(_scaled, signature=None, parameter_at=1),
    # Elementwise.
    "add": Operator(_same, of_add, elementwise=True),
    "sum": Operator(_same, of_sum, elementwise=True),  # of any number of operands
    "sub": Operator(_same, of_sub, elementwise=True),
    "mul": Operator(_same, of_mul, elementwise=True),
    "div": Operator(_same, of_div, elementwise=True, signature=None),
    "neg": Operator(_first, lambda b, n, dy: (b.add("neg", dy),), elementwise=True),
    "scale": Operator(
        _first,
        lambda b, n, dy: (b.add("scale", dy, value=b[n].value),),
        elementwise=True,
        signature=("value",),
    ),
    "shift": Operator(_first, lambda b, n, dy: (dy,), elementwise=True, signature=("value",)),
    "sigmoid": Operator(_first, from_output("sigmoid_gradient"), elementwise=True),
    "tanh": Operator(_first, from_output("tanh_gradient"), elementwise=True),
    "relu": Operator(_first, from_output("relu_gradient"), elementwise=True),
    "exp": Operator(_first, from_output("mul"), elementwise=True),
    "log": Operator(_first, lambda b, n, dy: (b.add("div", dy, b.inputs(n)[0]),), elementwise=True),
    "square": Operator(_first, of_square, elementwise=True),
    "sqrt": Operator(_first, of_sqrt, elementwise=True),
    "sigmoid_gradient": Operator(_same, elementwise=True),  # dy y (1 - y)
    "tanh_gradient": Operator(_same, elementwise=True),  # dy (1 - y^2)
    "relu_gradient": Operator(_same, elementwise=True),  # dy where y > 0
    # Columns.
    "concat": Operator(_joined, of_concat),
    "slice": Operator(None, signature=("shape", "index")),  # its gradient is joined in autodiff
    "sum_elements": Operator(
        _scalar,
        lambda b, n, dy: (b.add("expand", dy, shape=b[b.inputs(n)[0]].shape),),
        signature=None,
    ),
    "expand": Operator(None, lambda b, n, dy: (b.add("sum_elements", dy),), signature=None),
    # Any number of children: between a vertex and its incoming edges.
    "sum_edges": Operator(
        _first, lambda b, n, dy: (b.add("spread", dy, domain=EDGE),), domain=EDGE
    ),
    "spread": Operator(_first, lambda b, n, dy: (b.add("sum_edges", dy),), domain=VERTEX),
    # Loss.
    "pick_neg_log_softmax": Operator(_scalar, of_pick, pull_at=1),
    "softmax_minus_one_hot": Operator(_first, pull_at=1),
    # Parameter gradients: sums over all vertices.
    "outer_sum": Operator(_outer_shape, sink=True),
    "vertex_sum": Operator(lambda inputs: inputs[0].shape[-1:], sink=True),
    "row_sum": Operator(lambda inputs: inputs[1].shape, sink=True, pull_at=0),
}
