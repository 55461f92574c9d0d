"""The operator table: shape rules, what an operator refuses, and every gradient rule against finite
differences in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from harness.contracts.model import Model, ModelSizes, ParameterSpec
from harness.errors import ConfigError
from harness.oracle import run_reference
from harness.values.graph import MiniBatch
from harness.vertex import (
    Symbol,
    VertexTracer,
    exp,
    expand,
    log,
    pick_neg_log_softmax,
    relu,
    sigmoid,
    spread,
    sqrt,
    square,
    sum_edges,
    sum_elements,
    tanh,
)
from harness.vertex.autodiff import differentiate
from harness.vertex.operators import OPERATORS
from harness.vertex.program import VertexFunction
from harness.vertex.tracing import trace
from tests.support.finite_differences import check_gradients
from tests.support.sketches import Sketch, join_sketches

Body = Callable[[VertexTracer, Symbol, Symbol], Symbol]

# One function of two values of width 4 for every operator that has a gradient rule.
# Values come from tables, so that the gradient of an operand is the gradient of a row.
BODIES: dict[str, Body] = {
    "matmul": lambda v, x, y: x @ v.parameter("A"),
    "apply": lambda v, x, y: _twice(v, spread(_columns(x, 1, 2)) @ _rows(v)) * y,
    "bias": lambda v, x, y: x + v.parameter("b"),
    "lookup": lambda v, x, y: v.lookup("E", v.pull("word")) * y,
    "add": lambda v, x, y: x + y,
    "sum": lambda v, x, y: Symbol(x.builder, x.builder.add("sum", x.node, y.node, x.node)) * y,
    "sub": lambda v, x, y: x - y,
    "mul": lambda v, x, y: x * y,
    "div": lambda v, x, y: x / (y + 3.0),
    "neg": lambda v, x, y: -x,
    "scale": lambda v, x, y: 2.5 * x,
    "shift": lambda v, x, y: (x + 1.5) * (x - 0.5) * (2.0 - x),
    "sigmoid": lambda v, x, y: sigmoid(3.0 * x),
    "tanh": lambda v, x, y: tanh(3.0 * x),
    "relu": lambda v, x, y: relu(x) * y,
    "exp": lambda v, x, y: exp(x),
    "log": lambda v, x, y: log(x + 3.0),
    "square": lambda v, x, y: square(x),
    "sqrt": lambda v, x, y: sqrt(x + 3.0),
    "concat": lambda v, x, y: v.concat(y, x, square(y)) @ v.parameter("C"),
    "slice": lambda v, x, y: _swapped_halves(v, x),
    "sum_elements": lambda v, x, y: expand(sum_elements(x * y), 4),
    "expand": lambda v, x, y: expand(sum_elements(x), 4) * y,
    "sum_edges": lambda v, x, y: sum_edges(square(v.gather_each().h)) * y,
    "spread": lambda v, x, y: sum_edges(spread(x) * v.gather_each().h),
    "pick_neg_log_softmax": lambda v, x, y: expand(pick_neg_log_softmax(x, v.pull("label")), 4) * y,
}
# More ways to use operators, each of which once went wrong or easily could.
CASES: dict[str, Body] = {
    "the same operand twice": lambda v, x, y: x * x + x,
    "a value minus itself": lambda v, x, y: (x - x) * y + x / (x + 3.0),
    "a parameter twice": lambda v, x, y: tanh(x @ v.parameter("A")) @ v.parameter("A"),
    "a bias on the left": lambda v, x, y: (v.parameter("b") + x) * (y + v.parameter("b")),
    "a bias added twice": lambda v, x, y: x + v.parameter("b") + v.parameter("b"),
    "a bias of both parts": lambda v, x, y: (x + v.parameter("b")) + (y + v.parameter("b")),
    "one product twice": lambda v, x, y: x @ v.parameter("A") + x @ v.parameter("A"),
    "one matrix in both parts": lambda v, x, y: x @ v.parameter("A") - y @ v.parameter("A"),
    "one row in both parts": lambda v, x, y: (
        v.lookup("E", v.pull("word")) + (x - v.lookup("E", v.pull("word")))
    ),
    "one table, two rows": lambda v, x, y: (
        v.lookup("E", v.pull("word")) * v.lookup("E", v.pull("tag"))
    ),
    "overlapping slices": lambda v, x, y: v.concat(_columns(x, 0, 3), _columns(x, 2, 1)) * y,
    "one slice only": lambda v, x, y: expand(sum_elements(_columns(x, 1, 2)), 4) * y,
    "the same slice twice": lambda v, x, y: v.concat(*[_columns(x, 1, 2)] * 2) * y,
    "a slice and the whole": lambda v, x, y: expand(sum_elements(_columns(x, 0, 2)), 4) * x,
    "slices of a concatenation": lambda v, x, y: _columns(v.concat(x, y), 2, 4) * x,
    "concatenated with itself": lambda v, x, y: v.concat(x, x, y) @ v.parameter("C"),
    "slices of an edge": lambda v, x, y: sum_edges(
        v.concat(*[_columns(v.gather_each().h, 2, 1)] * 4)
    ),
    "division by a number": lambda v, x, y: x / 4.0,
    "products of an edge": lambda v, x, y: sum_edges(
        tanh((v.gather_each().h + spread(x)) @ v.parameter("A") + v.parameter("b"))
    ),
    "rows of a matrix": lambda v, x, y: _twice(
        v, _row(v) @ (_rows(v) @ v.parameter("P") + v.parameter("p"))
    ),
    "a matrix twice": lambda v, x, y: _twice(v, tanh(_row(v) @ _rows(v)) @ _rows(v)),
    "functions of a matrix": lambda v, x, y: _twice(
        v, _row(v) @ (_rows(v) * tanh(_rows(v) + v.parameter("p")))
    ),
    "a sum of matrices": lambda v, x, y: _twice(
        v, spread(_columns(x, 0, 2) @ sum_edges(_rows(v))) + _row(v)
    ),
}


def _rows(v: VertexTracer) -> Symbol:
    """The children's states, each as a matrix."""
    return v.gather_each().matrix("h", 2)


def _row(v: VertexTracer) -> Symbol:
    return spread(_columns(v.lookup("E", v.pull("word")), 1, 2))


def _twice(v: VertexTracer, x: Symbol) -> Symbol:
    return v.concat(sum_edges(x), tanh(sum_edges(x)))


def _columns(x: Symbol, start: int, width: int) -> Symbol:
    return Symbol(x.builder, x.builder.slice(x.node, start, width))


def _swapped_halves(v: VertexTracer, x: Symbol) -> Symbol:
    low, high = v.split(x, 2)
    return v.concat(square(high), low)


class OneBody(Model):
    """Leaves scatter table rows; a vertex applies the body under test; the loss squares the sum."""

    name = "one_body"
    instance_kind = "sketch"
    vertex_types = ("leaf", "vertex")

    def __init__(self, body: Body) -> None:
        super().__init__(ModelSizes(4, {"words": 7, "classes": 4}))
        self.body = body

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": 4}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        shapes: dict[str, tuple[int, ...]] = {"X": (7, 4), "Y": (7, 4), "E": (7, 4), "L": (7, 4)}
        shapes |= {"A": (4, 4), "b": (4,), "C": (12, 4), "P": (2, 2), "p": (2,)}
        return {name: ParameterSpec(shape, 1.0) for name, shape in shapes.items()}

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        return join_sketches(instances, self.vertex_types, 4, 7)

    def leaf(self, v: VertexTracer) -> None:
        v.scatter(h=v.lookup("L", v.pull("word")))

    def vertex(self, v: VertexTracer) -> None:
        x, y = v.lookup("X", v.pull("word")), v.lookup("Y", v.pull("word"))
        v.scatter(h=self.body(v, x, y))

    def output(self, v: VertexTracer) -> None:
        h = v.gather(0).h
        v.push(h, loss=sum_elements(square(h + 0.5)))


# One vertex with two different children and one read twice, and one without any.
SKETCH = Sketch([("leaf", []), ("leaf", []), ("vertex", [0, 1, 0]), ("vertex", [])], read=(2, 3))


def _weights(model: Model) -> dict[str, np.ndarray]:
    """Values that keep away from kinks: magnitudes of 0.2 to 1."""
    stream = np.random.default_rng(5)
    return {
        name: stream.uniform(0.2, 1.0, spec.shape) * stream.choice([-1.0, 1.0], spec.shape)
        for name, spec in model.parameters.items()
    }


def _traced(body: Body) -> VertexFunction:
    model = OneBody(body)
    return trace(model, "vertex", {name: spec.shape for name, spec in model.parameters.items()})


def test_every_operator_with_a_gradient_has_a_body() -> None:
    # slice is the one whose gradient is joined in autodiff instead of by a rule.
    differentiable = {name for name, rule in OPERATORS.items() if rule.gradient is not None}
    assert set(BODIES) == differentiable | {"slice"}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_uses_its_operator(name: str) -> None:
    assert name in {node.op for node in _traced(BODIES[name]).nodes}


@pytest.mark.parametrize("name", [*BODIES, *CASES])
def test_gradient_equals_finite_differences(name: str) -> None:
    model = OneBody((BODIES | CASES)[name])
    weights = _weights(model)
    result = run_reference(model, weights, [SKETCH], "train")
    check_gradients(
        lambda w: run_reference(model, w, [SKETCH], "infer").loss, weights, result.gradients
    )


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_gradient_is_noticed(name: str) -> None:
    model = OneBody(BODIES[name])
    weights = _weights(model)
    gradients = dict(run_reference(model, weights, [SKETCH], "train").gradients)
    # A row or matrix that the body reads: one of its gradient's entries, one percent off.
    key = max(gradients, key=lambda k: float(np.abs(gradients[k]).max()))
    wrong = gradients[key].copy()
    wrong.flat[np.abs(wrong).argmax()] *= 1.01
    with pytest.raises(AssertionError, match=key):
        check_gradients(
            lambda w: run_reference(model, w, [SKETCH], "infer").loss,
            weights,
            gradients | {key: wrong},
        )


def test_an_operator_without_a_gradient_rule_is_named() -> None:
    def body(v: VertexTracer, x: Symbol, y: Symbol) -> Symbol:
        return Symbol(x.builder, x.builder.add("relu_gradient", x.node, y.node))

    with pytest.raises(ConfigError, match="relu_gradient in vertex has no gradient rule"):
        differentiate(_traced(body))


REFUSED: dict[str, tuple[Body, str]] = {
    "unequal shapes": (lambda v, x, y: x + v.zeros(3), r"\[\(4,\), \(3,\)\]; they must be equal"),
    "a matrix of other rows": (lambda v, x, y: x @ v.parameter("C"), r"\(4,\) with a \(12, 4\)"),
    "a product with a bias": (lambda v, x, y: x @ v.parameter("b"), r"\(4,\) with a \(4,\)"),
    "a product of two vectors": (lambda v, x, y: x @ y, r"\(4,\) with a \(4,\) matrix"),
    "a matrix of other rows of a child": (lambda v, x, y: x @ _rows(v), r"\(4,\) with a \(2, 2\)"),
    "a product of two matrices": (lambda v, x, y: _rows(v) @ _rows(v), "give a vector"),
    "a matrix in a concat": (lambda v, x, y: v.concat(x, _rows(v)), "give a vector"),
    "columns of a matrix": (lambda v, x, y: _columns(_rows(v), 0, 2), "give a vector"),
    "the sum of a matrix": (lambda v, x, y: expand(sum_elements(_rows(v)), 4), "give a vector"),
    "rows that do not fit": (lambda v, x, y: v.gather(0).matrix("h", 3), "of 3 rows"),
    "an unknown matrix": (lambda v, x, y: v.gather(0).matrix("m", 2), "width 0"),
    "two shapes": (lambda v, x, y: _rows(v) * v.gather_each().h, "in two shapes"),
    "a bias of other width": (lambda v, x, y: v.zeros(3) + v.parameter("b"), "only a bias"),
    "a matrix as a bias": (lambda v, x, y: x + v.parameter("A"), "only a bias as wide"),
    "a value times a parameter": (lambda v, x, y: x * v.parameter("b"), "only a bias"),
    "a parameter times a value": (lambda v, x, y: v.parameter("b") * x, "must be a value"),
    "a parameter minus a value": (lambda v, x, y: v.parameter("b") - x, "must be a value"),
    "a function of a parameter": (lambda v, x, y: tanh(v.parameter("b")), "must be a value"),
    "a parameter in a concat": (lambda v, x, y: v.concat(x, v.parameter("b")), "must be a value"),
    "a lookup by a value": (lambda v, x, y: v.lookup("E", x), "must be a pull"),
    "a lookup in a vector": (lambda v, x, y: v.lookup("b", v.pull("word")), "use a matrix"),
    "a label that is a value": (lambda v, x, y: pick_neg_log_softmax(x, y), "must be a pull"),
    "arithmetic on a pull": (lambda v, x, y: v.pull("word") + v.pull("tag"), "must be a value"),
    "a vertex and its edges": (lambda v, x, y: v.gather_each().h + x, "use spread first"),
    "edges of a vertex": (lambda v, x, y: sum_edges(x), "takes one of the edge"),
    "spreading an edge": (lambda v, x, y: spread(v.gather_each().h), "takes one of the vertex"),
    "expanding a vector": (lambda v, x, y: expand(x, 8), r"must be \(1,\)"),
    "unequal parts": (lambda v, x, y: v.split(x, 3)[0], "cannot be cut into 3 equal parts"),
    "no parts": (lambda v, x, y: v.split(x, 0)[0], "cannot be cut into 0 equal parts"),
    "columns outside": (lambda v, x, y: _columns(x, 3, 2), "not inside a vector of 4"),
    "no columns": (lambda v, x, y: _columns(x, 3, 0), "not inside a vector of 4"),
    "an unknown parameter": (lambda v, x, y: x @ v.parameter("Q"), "Q is not declared; declared"),
    "a negative slot": (lambda v, x, y: v.gather(-1).h, "slots are counted from 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message) as error:
        _traced(body)
    assert "\n" not in str(error.value)


def test_scatter_and_push_check_what_they_are_given() -> None:
    tracer = VertexTracer({"h": 4}, {})
    with pytest.raises(ConfigError, match="state h of width 3 is scattered; declared are"):
        tracer.scatter(h=tracer.zeros(3))
    with pytest.raises(ConfigError, match="state c of width 4 is scattered"):
        tracer.scatter(c=tracer.zeros(4))
    with pytest.raises(ConfigError, match=r"a loss of shape \(4,\) is pushed; it must be \(1,\)"):
        tracer.push(tracer.zeros(4), loss=tracer.zeros(4))
    with pytest.raises(ConfigError, match="give a vector"):
        tracer.push(tracer.gather(1).matrix("h", 2))
    with pytest.raises(AttributeError, match="state c is not scattered; known: h"):
        _ = tracer.gather(0).c


def test_equal_expressions_are_one_node() -> None:
    tracer = VertexTracer({"h": 4}, {"A": (4, 4)})
    h = tracer.gather(0).h
    assert (h @ tracer.parameter("A")).node == (tracer.gather(0).h @ tracer.parameter("A")).node
    assert (h + 1.0).node != (h + 2.0).node
    assert tracer.gather(1).h.node != h.node


def test_slices_of_slices_are_folded_and_whole_ones_dropped() -> None:
    tracer = VertexTracer({"h": 8}, {})
    h = tracer.gather(0).h
    _, high = tracer.split(h, 2)
    _, last = tracer.split(high, 2)
    node = tracer.builder[last.node]
    assert (node.op, node.inputs, node.index, node.shape) == ("slice", (h.node,), 6, (2,))
    assert tracer.split(h, 1)[0].node == h.node
