"""Tracing: simplifications, and one-line errors for wrong shapes, parameters and domains."""

from __future__ import annotations

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    expand,
    layer_norm,
    mix_heads,
    pick_neg_log_softmax,
    score_heads,
    spread,
    sum_edges,
    sum_elements,
    tanh,
)
from tests.support.one_body import Body, columns, rows, traced


def _each(v: VertexTracer) -> Symbol:
    return v.gather(0).as_matrix("h", 2)


REFUSED: dict[str, tuple[Body, str]] = {
    "unequal shapes": (lambda v, x, y: x + v.zeros(3), r"equal shape, got \[\(4,\), \(3,\)\]"),
    "a matrix of other rows": (lambda v, x, y: x @ v.parameter("C"), r"\(4,\) with a \(12, 4\)"),
    "a product with a bias": (lambda v, x, y: x @ v.parameter("b"), r"\(4,\) with a \(4,\)"),
    "a product of two vectors": (lambda v, x, y: x @ y, r"\(4,\) with a \(4,\) matrix"),
    "a matrix of other rows of a child": (lambda v, x, y: x @ rows(v), r"\(4,\) with a \(2, 2\)"),
    "a product of two matrices": (lambda v, x, y: rows(v) @ rows(v), "expected a vector"),
    "a matrix in a concat": (lambda v, x, y: v.concat(x, rows(v)), "expected a vector"),
    "columns of a matrix": (lambda v, x, y: columns(rows(v), 0, 2), "expected a vector"),
    "the sum of a matrix": (lambda v, x, y: expand(sum_elements(rows(v)), 4), "expected a vector"),
    "rows that do not fit": (lambda v, x, y: v.gather(0).as_matrix("h", 3), "divisible by 3 rows"),
    "an unknown matrix": (lambda v, x, y: v.gather(0).as_matrix("m", 2), "got 0"),
    "two shapes": (lambda v, x, y: rows(v) * v.gather_each().h, "in two shapes"),
    "a bias of other width": (lambda v, x, y: v.zeros(3) + v.parameter("b"), "add a bias"),
    "a matrix as a bias": (lambda v, x, y: x + v.parameter("A"), "add a bias as wide"),
    "a value times a parameter": (lambda v, x, y: x * v.parameter("b"), "add a bias"),
    "a parameter times a value": (lambda v, x, y: v.parameter("b") * x, "expected a value"),
    "a parameter minus a value": (lambda v, x, y: v.parameter("b") - x, "expected a value"),
    "a function of a parameter": (lambda v, x, y: tanh(v.parameter("b")), "expected a value"),
    "a parameter in a concat": (lambda v, x, y: v.concat(x, v.parameter("b")), "expected a value"),
    "a lookup by a value": (lambda v, x, y: v.lookup("E", x), "expected a pull"),
    "a lookup in a vector": (lambda v, x, y: v.lookup("b", v.pull("word")), "expected a matrix"),
    "a label that is a value": (lambda v, x, y: pick_neg_log_softmax(x, y), "expected a pull"),
    "arithmetic on a pull": (lambda v, x, y: v.pull("word") + v.pull("tag"), "expected a value"),
    "a vertex and its edges": (lambda v, x, y: v.gather_each().h + x, "use spread first"),
    "edges of a vertex": (lambda v, x, y: sum_edges(x), "expected a value of the edge"),
    "spreading an edge": (
        lambda v, x, y: spread(v.gather_each().h),
        "expected a value of the vertex",
    ),
    "expanding a vector": (lambda v, x, y: expand(x, 8), r"expected shape \(1,\)"),
    "unequal parts": (lambda v, x, y: v.split(x, 3)[0], "into 3 equal parts"),
    "no parts": (lambda v, x, y: v.split(x, 0)[0], "into 0 equal parts"),
    "columns outside": (lambda v, x, y: columns(x, 3, 2), "exceed a vector of width 4"),
    "no columns": (lambda v, x, y: columns(x, 3, 0), "exceed a vector of width 4"),
    "an unknown parameter": (lambda v, x, y: x @ v.parameter("R"), "R is not declared"),
    "a negative slot": (lambda v, x, y: v.gather(-1).h, "expected a slot of at least 0, got -1"),
    "heads of a vector": (lambda v, x, y: score_heads(x, y, 2), "expected a matrix"),
    "unequal heads": (lambda v, x, y: score_heads(_each(v), _each(v), 3), "into 3 equal heads"),
    "no heads": (lambda v, x, y: score_heads(_each(v), _each(v), 0), "into 0 equal heads"),
    "other columns": (
        lambda v, x, y: score_heads(_each(v), _each(v) @ v.parameter("Q"), 1),
        "expected rows of equal width, got 2 and 3",
    ),
    "weights of other rows": (
        lambda v, x, y: mix_heads(_each(v) @ v.parameter("Q"), _each(v), 1),
        "weights with 2 columns",
    ),
    "a gain of other width": (
        lambda v, x, y: layer_norm(x, v.parameter("p")),
        r"rows of \(4,\) by a gain of shape \(2,\)",
    ),
    "a gain that is a value": (lambda v, x, y: layer_norm(x, y), "expected a parameter"),
    "heads of a vertex and its edges": (
        lambda v, x, y: mix_heads(_each(v), rows(v), 1),
        "in two shapes|use spread first",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_function_body_gives_one_line(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message) as error:
        traced(body)
    assert "\n" not in str(error.value)


def test_scatter_and_push_validate_their_arguments() -> None:
    tracer = VertexTracer({"h": 4}, {})
    with pytest.raises(ConfigError, match="got h of width 3"):
        tracer.scatter(h=tracer.zeros(3))
    with pytest.raises(ConfigError, match="got c of width 4"):
        tracer.scatter(c=tracer.zeros(4))
    with pytest.raises(ConfigError, match=r"expected a loss of shape \(1,\), got"):
        tracer.push(tracer.zeros(4), loss=tracer.zeros(4))
    with pytest.raises(ConfigError, match="expected a vector"):
        tracer.push(tracer.gather(1).as_matrix("h", 2))
    with pytest.raises(AttributeError, match="unknown state c; choose one of h"):
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
