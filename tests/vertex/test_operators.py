"""Operators: gradients against finite differences in float64, attention against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.reference import KERNELS, run_reference
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    exp,
    expand,
    gelu,
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
from dynbatch.harness.vertex.autodiff import differentiate
from dynbatch.harness.vertex.operators import OPERATORS, Node
from tests.support.one_body import Body, OneBody, columns, rows, traced, wrong_gradients
from tests.support.sketch_models import Sketch

# One function of two values of width 4 for every operator that has a gradient rule.
# Values come from tables, so that the gradient of an operand is the gradient of a row.
BODIES: dict[str, Body] = {
    "matmul": lambda v, x, y: x @ v.parameter("A"),
    "apply": lambda v, x, y: _twice(v, spread(columns(x, 1, 2)) @ rows(v)) * y,
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
# Further uses of operators, each of which was once wrong or is error-prone.
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
    "overlapping slices": lambda v, x, y: v.concat(columns(x, 0, 3), columns(x, 2, 1)) * y,
    "one slice only": lambda v, x, y: expand(sum_elements(columns(x, 1, 2)), 4) * y,
    "the same slice twice": lambda v, x, y: v.concat(*[columns(x, 1, 2)] * 2) * y,
    "a slice and the whole": lambda v, x, y: expand(sum_elements(columns(x, 0, 2)), 4) * x,
    "slices of a concatenation": lambda v, x, y: columns(v.concat(x, y), 2, 4) * x,
    "concatenated with itself": lambda v, x, y: v.concat(x, x, y) @ v.parameter("C"),
    "slices of an edge": lambda v, x, y: sum_edges(
        v.concat(*[columns(v.gather_each().h, 2, 1)] * 4)
    ),
    "division by a number": lambda v, x, y: x / 4.0,
    "products of an edge": lambda v, x, y: sum_edges(
        tanh((v.gather_each().h + spread(x)) @ v.parameter("A") + v.parameter("b"))
    ),
    "rows of a matrix": lambda v, x, y: _twice(
        v, _row(v) @ (rows(v) @ v.parameter("P") + v.parameter("p"))
    ),
    "a matrix twice": lambda v, x, y: _twice(v, tanh(_row(v) @ rows(v)) @ rows(v)),
    "functions of a matrix": lambda v, x, y: _twice(
        v, _row(v) @ (rows(v) * tanh(rows(v) + v.parameter("p")))
    ),
    "a sum of matrices": lambda v, x, y: _twice(
        v, spread(columns(x, 0, 2) @ sum_edges(rows(v))) + _row(v)
    ),
}


def _row(v: VertexTracer) -> Symbol:
    return spread(columns(v.lookup("E", v.pull("word")), 1, 2))


def _twice(v: VertexTracer, x: Symbol) -> Symbol:
    return v.concat(sum_edges(x), tanh(sum_edges(x)))


def _swapped_halves(v: VertexTracer, x: Symbol) -> Symbol:
    low, high = v.split(x, 2)
    return v.concat(square(high), low)


# One vertex with two different children and one read twice, and one without children.
SKETCH = Sketch([("leaf", []), ("leaf", []), ("vertex", [0, 1, 0]), ("vertex", [])], read=(2, 3))


def _weights(model: Model) -> dict[str, np.ndarray]:
    """Return values away from kinks: magnitudes of 0.2 to 1."""
    stream = np.random.default_rng(5)
    return {
        name: stream.uniform(0.2, 1.0, spec.shape) * stream.choice([-1.0, 1.0], spec.shape)
        for name, spec in model.parameters.items()
    }


def test_every_operator_with_a_gradient_has_a_body() -> None:
    # slice is the only one whose gradient autodiff joins instead of using a rule.
    differentiable = {name for name, rule in OPERATORS.items() if rule.gradient is not None}
    assert set(BODIES) == differentiable | {"slice"}
    for name, body in BODIES.items():
        assert name in {node.op for node in traced(body).nodes}, name


def find_wrong_gradients(name: str, error: float = 0.0) -> tuple[str, list[str]]:
    """Return the parameter whose largest gradient has this relative error, and what is wrong."""
    model = OneBody((BODIES | CASES)[name])
    weights = _weights(model)
    gradients = dict(run_reference(model, weights, [SKETCH], "train").gradients)
    # A row or matrix that the body reads, with one entry of its gradient changed.
    key = max(gradients, key=lambda k: float(np.abs(gradients[k]).max()))
    gradients[key] = changed = gradients[key].copy()
    changed.flat[np.abs(changed).argmax()] *= 1.0 + error
    return key, wrong_gradients(
        lambda own: run_reference(model, own, [SKETCH], "infer").loss, weights, gradients
    )


@pytest.mark.parametrize("name", [*BODIES, *CASES])
def test_gradient_equals_finite_differences(name: str) -> None:
    _, wrong = find_wrong_gradients(name)
    assert wrong == []


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_gradient_is_noticed(name: str) -> None:
    key, (found,) = find_wrong_gradients(name, error=0.01)
    assert found.startswith(f"{key}[")


def test_an_operator_without_a_gradient_rule_is_named() -> None:
    def body(v: VertexTracer, x: Symbol, y: Symbol) -> Symbol:
        return Symbol(x.builder, x.builder.add("relu_gradient", x.node, y.node))

    with pytest.raises(ConfigError, match="relu_gradient in vertex has no gradient"):
        differentiate(traced(body))


# --- attention, softmax and layer normalization ---

N_HEADS, N_ROWS, N_WEIGHTS, WIDTH = 3, 4, 5, 6


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape)


def head(x: np.ndarray, k: int) -> np.ndarray:
    n = WIDTH // N_HEADS
    return x[:, k * n : (k + 1) * n]


def test_every_head_compares_its_own_columns() -> None:
    q, k = drawn(N_ROWS, WIDTH), drawn(N_WEIGHTS, WIDTH)
    found = KERNELS["score_heads"](Node("score_heads", index=N_HEADS), q, k)
    expected = [head(q, i) @ head(k, i).T for i in range(N_HEADS)]
    np.testing.assert_allclose(found, np.concatenate(expected))


def test_every_head_mixes_its_own_columns() -> None:
    p, v = drawn(N_HEADS * N_ROWS, N_WEIGHTS), drawn(N_WEIGHTS, WIDTH)
    found = KERNELS["mix_heads"](Node("mix_heads", index=N_HEADS), p, v)
    expected = [p[i * N_ROWS : (i + 1) * N_ROWS] @ head(v, i) for i in range(N_HEADS)]
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1))


def test_a_softmax_and_a_norm_are_of_rows() -> None:
    x, gain = 100.0 * drawn(3, 4), drawn(4)
    soft = KERNELS["softmax"](Node("softmax"), x)
    normal = KERNELS["layer_norm"](Node("layer_norm"), x, gain)
    for row, of_soft, of_norm in zip(x, soft, normal, strict=True):
        powers = [math.exp(value - max(row)) for value in row]
        np.testing.assert_allclose(of_soft, np.array(powers) / sum(powers))
        np.testing.assert_allclose(of_norm, gain * (row - row.mean()) / row.std())


def test_gelu_approximates_the_exact_function() -> None:
    nodes = traced(lambda v, x, y: gelu(x)).nodes
    xs = np.linspace(-4.0, 4.0, 41)
    values: dict[int, np.ndarray] = {}
    first = next(i for i, node in enumerate(nodes) if node.op == "lookup")
    for i, node in enumerate(nodes):
        if i == first:
            values[i] = xs
        elif node.inputs and all(k in values for k in node.inputs):
            values[i] = KERNELS[node.op](node, *(values[k] for k in node.inputs))
    exact = [x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in xs]
    np.testing.assert_allclose(values[len(nodes) - 1], exact, atol=1e-3)
