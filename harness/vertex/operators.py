"""Operator table: the shape rule, gradient rule and DyNet signature of every operator.

A node's shape is that of one vertex (or of one edge); the engine adds the batch dimension. A value
is a vector, or a matrix (MV-RNN's states), for which matmuls and biases work row by row. Gradient
rules append the gradients of an operator's inputs to a program b. Their arguments are b, the
operator's own node id, and dy, the id of its result's gradient. They return ids, or None for no
gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynbatch.harness.errors import ConfigError

if TYPE_CHECKING:
    from dynbatch.harness.vertex.program import Builder


GradientRule = Callable[["Builder", int, int], Sequence[int | None]]


def differentiate_sum(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of x + y + ...: dy for each."""
    return [dy] * len(b[node].inputs)


def differentiate_mul(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of x y: dy y and dy x."""
    x, y = b[node].inputs
    return b.add("mul", dy, y), b.add("mul", dy, x)


def differentiate_div(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of x / y: dy / y and -(dy / y) (x / y)."""
    _, y = b[node].inputs
    dx = b.add("div", dy, y)
    return dx, b.add("neg", b.add("mul", dx, node))


def from_output(op: str) -> GradientRule:
    """Return a rule that appends `op` of dy and the operator's own result."""
    return lambda b, node, dy: (b.add(op, dy, node),)


def differentiate_square(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradient of x^2: 2 x dy."""
    (x,) = b[node].inputs
    return (b.add("mul", dy, b.add("scale", x, value=2.0)),)


def differentiate_sqrt(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradient of sqrt x: dy / (2 sqrt x)."""
    return (b.add("scale", b.add("div", dy, node), value=0.5),)


def differentiate_matmul(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of x W: dy W^T, and x^T dy summed over all vertices."""
    x, weight = b[node].inputs
    return b.add("matmul_transposed", dy, weight), b.add("outer_sum", x, dy, name=b[weight].name)


def differentiate_apply(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of x A for a vertex's own matrix A: dy A^T and x^T dy."""
    x, matrix = b[node].inputs
    return b.add("apply_transposed", dy, matrix), b.add("outer", x, dy)


def differentiate_bias(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of x + b: dy, and dy summed over all vertices."""
    _, bias = b[node].inputs
    return dy, b.add("vertex_sum", dy, name=b[bias].name)


def differentiate_lookup(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of table[row]: dy added to that row; a row has no gradient."""
    table, row = b[node].inputs
    return b.add("row_sum", row, dy, name=b[table].name), None


def differentiate_concat(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of concat(x, y, ...): the columns of dy that belong to each."""
    grads, start = [], 0
    for x in b[node].inputs:
        grads.append(b.slice(dy, start, b[x].width))
        start += b[x].width
    return grads


def differentiate_pick(b: Builder, node: int, dy: int) -> Sequence[int | None]:
    """Return the gradients of -log softmax(x)[label]: (softmax(x) - one_hot(label)) dy.

    A label has no gradient.
    """
    logits, label = b[node].inputs
    return b.add("softmax_minus_one_hot", logits, label, dy), None


Shape = tuple[int, ...]
VERTEX, EDGE, PARAMETER = "vertex", "edge", "parameter"
LAYER_NORM_EPSILON = 1e-12  # added to a variance, as in BERT's release


@dataclass(frozen=True, slots=True)
class Node:
    """Operator of a program.

    Attributes:
        shape: per vertex (or edge, or of the parameter itself), by `domain`.
        name: name of the parameter, pull or state.
        index: slot of a gather, first column of a slice, or number of heads.
        value: constant of scale and shift.
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

    Attributes:
        shape: computes the shape from the input nodes (None: given when the node is built).
        gradient: (builder, node id, id of dy) -> ids of the gradients of the inputs; None for none.
        elementwise: each result element depends only on the same element of the inputs, so the
            operator can be fused.
        sink: the operator sums over all vertices into a parameter's gradient, so it is lazy.
        signature: properties that must be equal, in addition to the operator and, unless it is
            componentwise, the operands' shapes, for two applications to share a batch in DyNet
            (Neubig et al., NIPS 2017, appendix A): "parameter" (the same one), "index", "value" or
            "shape" (its own). None: DyNet has no batched kernel (signature 0).
        heavy: deferred by DyNet's agenda on ties (dynet/exec.cc).
        parameter_at, pull_at: index of the operand that must be a parameter, or a pull; such values
            are not allowed elsewhere.
        domain: domain of the operand, if the operator has only one.
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

    @property
    def is_componentwise(self) -> bool:
        """True for elementwise operators without a parameter, which DyNet batches in any shape."""
        return self.elementwise and self.parameter_at is None


def _infer_equal_shape(inputs: Sequence[Node]) -> Shape:
    shapes = {node.shape for node in inputs}
    if len(shapes) != 1:
        raise ConfigError(
            f"expected operands of equal shape, got {[node.shape for node in inputs]}"
        )
    return inputs[0].shape


def _infer_scalar_shape(inputs: Sequence[Node]) -> Shape:
    check_vectors(inputs[:1])
    return (1,)


def check_vectors(inputs: Sequence[Node]) -> None:
    """Raise ConfigError for a matrix, for which columns of elements are not defined."""
    for node in inputs:
        if len(node.shape) != 1:
            raise ConfigError(f"expected a vector, got shape {node.shape}")


def _infer_first_shape(inputs: Sequence[Node]) -> Shape:
    return inputs[0].shape


def _infer_row_shape(inputs: Sequence[Node]) -> Shape:
    table, _ = inputs
    if len(table.shape) != 2:
        raise ConfigError(f"lookup: expected a matrix as parameter, got shape {table.shape}")
    return table.shape[1:]


def _infer_concat_shape(inputs: Sequence[Node]) -> Shape:
    check_vectors(inputs)
    return (sum(node.width for node in inputs),)


def _infer_matmul_shape(inputs: Sequence[Node], rows: int = 0, columns: int = 1) -> Shape:
    x, weight = inputs
    if len(weight.shape) != 2 or x.shape[-1:] != (weight.shape[rows],):
        raise ConfigError(
            f"cannot multiply a value of shape {x.shape} with a {weight.shape} matrix"
        )
    return (*x.shape[:-1], weight.shape[columns])


def _infer_apply_shape(inputs: Sequence[Node], rows: int = 0, columns: int = 1) -> Shape:
    check_vectors(inputs[:1])
    return _infer_matmul_shape(inputs, rows, columns)


def _infer_outer_shape(inputs: Sequence[Node]) -> Shape:
    """Return the shape of x^T y, which is summed over the rows of matrices x and y."""
    return (inputs[0].shape[-1], inputs[1].shape[-1])


def _infer_scaled_shape(inputs: Sequence[Node]) -> Shape:
    x, gain = inputs
    if gain.shape != x.shape[-1:]:
        raise ConfigError(f"cannot scale rows of {x.shape} by a gain of shape {gain.shape}")
    return x.shape


OPERATORS: dict[str, Operator] = {
    # Inputs of a vertex function.
    "gather": Operator(),
    "gather_each": Operator(),
    "pull": Operator(),
    "parameter": Operator(),
    "zeros": Operator(signature=None),
    "ones": Operator(signature=None),
    "state_gradient": Operator(),
    # Linear algebra with shared parameters.
    "matmul": Operator(
        _infer_matmul_shape,
        differentiate_matmul,
        signature=("parameter",),
        heavy=True,
        parameter_at=1,
    ),
    "matmul_transposed": Operator(lambda inputs: _infer_matmul_shape(inputs, 1, 0), parameter_at=1),
    "bias": Operator(
        _infer_first_shape,  # the tracer checks the bias's width
        differentiate_bias,
        elementwise=True,
        signature=("parameter",),
        parameter_at=1,
    ),
    "lookup": Operator(
        _infer_row_shape, differentiate_lookup, signature=("parameter",), parameter_at=0, pull_at=1
    ),
    # x A, where A is a value of the vertex: DyNet batches only matmuls with the same node's matrix.
    "apply": Operator(_infer_apply_shape, differentiate_apply, signature=None, heavy=True),
    "apply_transposed": Operator(lambda inputs: _infer_apply_shape(inputs, 1, 0)),
    "outer": Operator(_infer_outer_shape),
    # Attention (dynbatch.harness.vertex.tracing); inference only. DyNet has no batched kernel for
    # matmuls of two values, nor for the parts of its layer_norm.
    "score_heads": Operator(None, signature=None, heavy=True),
    "mix_heads": Operator(None, signature=None, heavy=True),
    "softmax": Operator(_infer_first_shape, signature=("shape",)),
    "layer_norm": Operator(_infer_scaled_shape, signature=None, parameter_at=1),
    # Elementwise.
    "add": Operator(_infer_equal_shape, differentiate_sum, elementwise=True),
    "sum": Operator(
        _infer_equal_shape, differentiate_sum, elementwise=True
    ),  # any number of operands
    "sub": Operator(_infer_equal_shape, lambda b, n, dy: (dy, b.add("neg", dy)), elementwise=True),
    "mul": Operator(_infer_equal_shape, differentiate_mul, elementwise=True),
    "div": Operator(_infer_equal_shape, differentiate_div, elementwise=True, signature=None),
    "neg": Operator(_infer_first_shape, lambda b, n, dy: (b.add("neg", dy),), elementwise=True),
    "scale": Operator(
        _infer_first_shape,
        lambda b, n, dy: (b.add("scale", dy, value=b[n].value),),
        elementwise=True,
        signature=("value",),
    ),
    "shift": Operator(
        _infer_first_shape, lambda b, n, dy: (dy,), elementwise=True, signature=("value",)
    ),
    "sigmoid": Operator(_infer_first_shape, from_output("sigmoid_gradient"), elementwise=True),
    "tanh": Operator(_infer_first_shape, from_output("tanh_gradient"), elementwise=True),
    "relu": Operator(_infer_first_shape, from_output("relu_gradient"), elementwise=True),
    "exp": Operator(_infer_first_shape, from_output("mul"), elementwise=True),
    "log": Operator(
        _infer_first_shape,
        lambda b, n, dy: (b.add("div", dy, b[n].inputs[0]),),
        elementwise=True,
    ),
    "square": Operator(_infer_first_shape, differentiate_square, elementwise=True),
    "sqrt": Operator(_infer_first_shape, differentiate_sqrt, elementwise=True),
    "sigmoid_gradient": Operator(_infer_equal_shape, elementwise=True),  # dy y (1 - y)
    "tanh_gradient": Operator(_infer_equal_shape, elementwise=True),  # dy (1 - y^2)
    "relu_gradient": Operator(_infer_equal_shape, elementwise=True),  # dy where y > 0
    # Columns.
    "concat": Operator(_infer_concat_shape, differentiate_concat),
    "slice": Operator(None, signature=("shape", "index")),  # autodiff joins the gradients of slices
    "sum_elements": Operator(
        _infer_scalar_shape,
        lambda b, n, dy: (b.add("expand", dy, shape=b[b[n].inputs[0]].shape),),
        signature=None,
    ),
    "expand": Operator(None, lambda b, n, dy: (b.add("sum_elements", dy),), signature=None),
    # Variable number of children: between a vertex and its incoming edges.
    "sum_edges": Operator(
        _infer_first_shape, lambda b, n, dy: (b.add("spread", dy, domain=EDGE),), domain=EDGE
    ),
    "spread": Operator(
        _infer_first_shape, lambda b, n, dy: (b.add("sum_edges", dy),), domain=VERTEX
    ),
    # Loss.
    "pick_neg_log_softmax": Operator(_infer_scalar_shape, differentiate_pick, pull_at=1),
    "softmax_minus_one_hot": Operator(_infer_first_shape, pull_at=1),
    # Parameter gradients: sums over all vertices.
    "outer_sum": Operator(_infer_outer_shape, sink=True),
    "vertex_sum": Operator(lambda inputs: inputs[0].shape[-1:], sink=True),
    "row_sum": Operator(lambda inputs: inputs[1].shape, sink=True, pull_at=0),
}
