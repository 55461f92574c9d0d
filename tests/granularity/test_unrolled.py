"""Functions of any number of children written out for some: by hand, and against the function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from harness.contracts.model import traced_functions
from harness.granularity.operator_functions import is_variadic, unroll
from harness.granularity.operators import OperatorModel
from harness.vertex import Symbol, VertexTracer, spread, sum_edges, tanh
from harness.vertex.operators import EDGE
from harness.vertex.program import VertexFunction
from tests.support.engine_models import EXAMPLES
from tests.support.sketches import Sketch

Body = Callable[[VertexTracer], Symbol]


def traced(body: Body) -> VertexFunction:
    tracer = VertexTracer({"h": 4}, {"A": (4, 4)})
    tracer.scatter(h=body(tracer))
    return VertexFunction("body", tuple(tracer.builder.nodes), tuple(tracer.scattered.items()))


def written(function: VertexFunction, i: int | None = None) -> str:
    """A node of a function (its state h) as an expression."""
    node = function.nodes[dict(function.scatter)["h"] if i is None else i]
    if node.op in ("gather", "parameter"):
        return f"{node.name}{node.index}" if node.op == "gather" else node.name
    return f"{node.op}({', '.join(written(function, k) for k in node.inputs)})"


@pytest.mark.parametrize(
    ("n_edges", "expected"),
    [
        (0, "add(zeros(), matmul(zeros(), A))"),
        (1, "add(tanh(h0), matmul(h0, A))"),
        (2, "add(sum(tanh(h0), tanh(h1)), matmul(sum(h0, h1), A))"),
        (3, "add(sum(tanh(h0), tanh(h1), tanh(h2)), matmul(sum(h0, h1, h2), A))"),
    ],
)
def test_sums_have_as_many_operands_as_there_are_children(n_edges: int, expected: str) -> None:
    def body(v: VertexTracer) -> Symbol:
        each = v.gather_each().h
        return sum_edges(tanh(each)) + sum_edges(each) @ v.parameter("A")

    assert written(unroll(traced(body), n_edges)) == expected


def test_a_value_spread_to_the_edges_is_the_vertexs_own() -> None:
    def body(v: VertexTracer) -> Symbol:
        own = tanh(v.gather(0).h)
        return sum_edges(v.gather_each().h * spread(own))

    assert written(unroll(traced(body), 2)) == "sum(mul(h0, tanh(h0)), mul(h1, tanh(h0)))"


def test_what_is_the_same_for_all_children_is_computed_once() -> None:
    function = unroll(traced(lambda v: sum_edges(tanh(spread(tanh(v.gather(0).h))))), 3)
    assert written(function) == "sum(tanh(tanh(h0)), tanh(tanh(h0)), tanh(tanh(h0)))"
    assert [node.op for node in function.nodes] == ["gather", "tanh", "tanh", "sum"]


def test_slices_of_a_child_stay_folded() -> None:
    def body(v: VertexTracer) -> Symbol:
        low, _ = v.split(v.gather_each().h, 2)
        first, _ = v.split(sum_edges(low), 2)
        return v.concat(*[first] * 4)

    function = unroll(traced(body), 1)
    slices = [node for node in function.nodes if node.op == "slice"]
    assert (1, 0) in {(node.width, node.index) for node in slices}
    assert all(function.nodes[node.inputs[0]].op == "gather" for node in slices)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_written_out_function_has_no_edges(name: str) -> None:
    for function in traced_functions(EXAMPLES[name][0]).values():
        for n_edges in range(4):
            unrolled = unroll(function, n_edges)
            assert not is_variadic(unrolled)
            assert dict(unrolled.scatter).keys() == dict(function.scatter).keys()
            if is_variadic(function):
                assert any(node.domain == EDGE for node in function.nodes)
                assert unrolled.arity <= max(n_edges, function.arity)
            else:
                assert unrolled == function


def test_operators_of_a_child_sum_grow_with_its_children() -> None:
    """Beside those of the vertex itself: per child a product, an addition, a gate, a product."""
    model = EXAMPLES["child_sum"][0]
    operators = OperatorModel(model)

    def ops(n_edges: int) -> Counter[str]:
        n_leaves = max(n_edges, 1)
        sketch = Sketch([("vertex", [])] * n_leaves + [("vertex", list(range(n_edges)))])
        expanded = operators.mini_batch([sketch])
        names = [expanded.graph.type_names[f] for f in expanded.functions]
        leaf = operators.mini_batch([Sketch([("vertex", [])])])
        own = [leaf.graph.type_names[f] for f in leaf.functions]
        return Counter(names) - Counter({k: n_leaves * n for k, n in Counter(own).items()})

    two, five = ops(2), ops(5)
    assert (two["sum of 2"], five["sum of 5"]) == (2, 2)  # of h, and of what the gates let through
    assert not (set(two) | set(five)) & {"sum of 1", "zeros"}
    more = {name: five[name] - two[name] for name in two if not name.startswith("sum")}
    assert {name: n for name, n in more.items() if n} == dict.fromkeys(
        ("matmul U_f", "add", "sigmoid", "mul"), 3
    )
