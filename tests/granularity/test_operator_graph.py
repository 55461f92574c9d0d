"""Operator granularity: graphs of tiny trees by hand, and functions unrolled for their children."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import pytest

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.granularity.operator_functions import FunctionTable, is_variadic, unroll
from dynbatch.harness.granularity.operators import OperatorModel, build_operator_graph
from dynbatch.harness.models.tree_fc import TreeFC
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import UNBATCHABLE, Graph, MiniBatch
from dynbatch.harness.values.instances import Lattice
from dynbatch.harness.vertex import Symbol, VertexTracer, spread, sum_edges, tanh
from dynbatch.harness.vertex.operators import EDGE
from dynbatch.harness.vertex.program import VertexFunction
from tests.support.engine_models import CHAINS, EXAMPLES, TREES, tree
from tests.support.sketch_models import SIZES, Sketch

PAIR = tree([1, 2, -1], [-1, -1, 0], [-1, -1, 1])


def _graph(model: Model, *trees: object) -> Graph:
    return build_operator_graph(model, model.mini_batch(trees))


def _names(graph: Graph, mini_batch: MiniBatch | None = None) -> list[str]:
    functions = graph.types if mini_batch is None else mini_batch.functions
    return [_kind(graph.type_names[t]) for t in functions]


def _kind(name: str) -> str:
    """Return the operator without the parameters and columns that distinguish it."""
    return name if name.startswith("sum of") else name.split()[0]


def test_tree_fc_pair_by_hand() -> None:
    mini_batch = OperatorModel(TreeFC(SIZES, variant="fold")).mini_batch([PAIR])
    graph = mini_batch.graph
    assert _names(graph, mini_batch) == [
        "lookup", "lookup", "concat", "affine", "relu", "square", "sum_elements", "scale"
    ]  # fmt: skip
    assert [graph.select_args(v).tolist() for v in range(8)] == [
        [], [], [0, 1], [2], [3], [4], [5], [6]
    ]  # fmt: skip
    assert graph.types[0] == graph.types[1]
    assert graph.types[6] == UNBATCHABLE  # DyNet does not batch reductions
    assert mini_batch.outputs.tolist() == [4]
    assert [values.tolist() for values in mini_batch.pulls.values()] == [[1, 2, *[-1] * 6]]
    cheap = {_kind(graph.type_names[t]): bool(graph.cheap[t]) for t in set(graph.types.tolist())}
    assert not cheap["affine"]
    assert cheap["relu"]
    assert cheap["concat"]


# Operators of one vertex, by name: lookups, matmuls with their bias, gates, cell, state.
TREE_LSTM: Mapping[str, Mapping[str, int]] = {
    "leaf": {"lookup": 1, "affine": 1, "slice": 3, "sigmoid": 2, "tanh": 2, "mul": 2},
    "internal": {"concat": 1, "affine": 3, "slice": 3, "sigmoid": 4, "tanh": 2, "mul": 4, "add": 2},
    "output": {"matmul": 1, "pick_neg_log_softmax": 1},
}


def test_tree_lstm_has_so_many_operators_of_each_kind() -> None:
    model = EXAMPLES["tree_lstm"][0]
    vertices = model.mini_batch(TREES)
    n = Counter({"output": len(vertices.outputs)})
    n.update(vertices.graph.type_names[t] for t in vertices.graph.types)
    expected: Counter[str] = Counter()
    for kind, operators in TREE_LSTM.items():
        for name, count in operators.items():
            expected[name] += count * n[kind]
    assert Counter(_names(_graph(model, *TREES))) == expected


def test_operators_that_can_share_a_kernel_have_same_type() -> None:
    graph = _graph(EXAMPLES["tree_lstm"][0], PAIR)
    names = _names(graph)
    types = {
        name: {t for t, n in zip(graph.types, names, strict=True) if n == name} for name in names
    }
    assert len(types["sigmoid"]) == 1  # of leaves and of internal vertices
    assert len(types["lookup"]) == 1
    assert len(types["slice"]) == 3  # i, o, u start at different columns
    assert len(types["affine"]) == 4  # W, U, F_1, F_2 are different parameters
    assert len(types["matmul"]) == 1
    assert len(set(graph.type_names)) == graph.n_types
    assert {"affine F_1 b_f", "slice 4:8", "lookup embedding"} <= set(graph.type_names)


def test_componentwise_operators_of_all_sizes_have_one_type() -> None:
    """They batch by operation alone (Neubig et al., NIPS 2017, appendix A); others by shape."""
    model, instances = EXAMPLES["bilstm_char"]
    expanded = OperatorModel(model).mini_batch(instances)
    names = _names(expanded.graph, expanded)
    types, functions = (
        {
            kind: set(ids[[v for v, name in enumerate(names) if name == kind]].tolist())
            for kind in set(names)
        }
        for ids in (expanded.graph.types, expanded.functions)
    )
    assert {kind: len(types[kind]) for kind in ("sigmoid", "tanh", "mul", "add")} == {
        "sigmoid": 1, "tanh": 1, "mul": 1, "add": 1
    }  # fmt: skip
    assert len(functions["sigmoid"]) == len(functions["mul"]) == 2  # of letters and of words
    assert len(types["slice"]) == len(functions["slice"]) > 4


def test_constants_and_numbers_of_terms_stay_apart() -> None:
    """Constants and numbers of terms belong to DyNet's signatures of componentwise operators."""

    def body(v: VertexTracer) -> Symbol:
        h = v.gather(0).h
        low, _ = v.split(h, 2)
        scaled = v.concat(low * 2.0, low * 3.0) + h * 2.0
        return scaled + sum_edges(v.gather_each().h)

    table = FunctionTable()
    types = Counter(
        (table.names[a.function].split()[0], a.type)
        for n in (2, 3)
        for a in table.make_template(unroll(traced(body), n)).applications
    )
    n_types = Counter(kind for kind, _ in types)
    assert (n_types["scale"], n_types["sum"], n_types["add"]) == (2, 2, 1)


def test_lookups_of_one_table_share_a_type_whatever_they_pull() -> None:
    model, sketches = EXAMPLES["two_pulls"]
    mini_batch = OperatorModel(model).mini_batch(sketches)
    lookups = [v for v, name in enumerate(_names(mini_batch.graph)) if name == "lookup"]
    assert len({int(mini_batch.graph.types[v]) for v in lookups}) == len(mini_batch.pulls) == 1


def test_sums_of_different_numbers_of_children_cannot_share_a_batch() -> None:
    """A join of two arcs and a join of three; each sums h and c."""
    model = EXAMPLES["lattice_lstm"][0]
    lattice = Lattice(
        tags=as_int_array([0, 1, 2, 0]),
        arc_start=as_int_array([0, 0, 1, 3, 6]),
        sources=as_int_array([0, 1, 0, 2, 1, 0]),
        tokens=as_int_array([1, 0, 3, 2, 5, 4]),
    )
    names = Counter(_names(_graph(model, lattice)))
    assert names["sum of 2"] == names["sum of 3"] == 2
    assert _graph(model, lattice, lattice).type_names.count("sum of 3") == 1


def test_a_learned_state_is_one_batch_whatever_the_number_of_instances() -> None:
    model, lattices = EXAMPLES["lattice_lstm"]
    graph = _graph(model, *lattices * 2)
    parameters = [v for v, name in enumerate(_names(graph)) if name == "parameter"]
    assert len(parameters) == 2 * len(lattices * 2)  # h and c of every start
    assert len({int(graph.types[v]) for v in parameters}) == 2
    assert UNBATCHABLE not in graph.types


def test_unread_values_are_not_operators() -> None:
    names = _names(_graph(EXAMPLES["chain_lstm"][0], CHAINS[1]))
    # A first vertex does not use the forget gate; then the classifier and its loss.
    assert names == [
        "lookup", "affine", "slice", "slice", "slice", "sigmoid", "tanh", "mul", "sigmoid", "tanh",
        "mul", "matmul", "pick_neg_log_softmax"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sketch", "message"),
    [
        (
            Sketch([("narrow", []), ("wide", []), ("inner", [1, 0])]),
            "an? inner vertex gathers state a, but its wide child does not scatter it",
        ),
        (
            Sketch([("narrow", []), ("inner", [0])]),
            "an? inner vertex gathers slot 1 but has 1 children",
        ),
        (Sketch([("unbatchable", [])]), "type unbatchable has no vertex function"),
        (Sketch([("narrow", [])], read=(1,)), "an output reads vertex 1, but the graph has 1 vert"),
    ],
)
def test_children_that_do_not_fit_are_named(sketch: Sketch, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        _graph(EXAMPLES["several_widths"][0], sketch)


def test_a_missing_pull_is_named() -> None:
    model = EXAMPLES["chain_lstm"][0]
    mini_batch = model.mini_batch([CHAINS[1]])
    with pytest.raises(ScheduleError, match="the mini-batch has no pull 'label'"):
        build_operator_graph(model, replace(mini_batch, pulls={}))


@pytest.mark.parametrize("name", ["seq2seq", "parser"])
def test_operators_are_of_the_segment_of_their_vertex(name: str) -> None:
    """Each segment has as many operators as its vertices and their outputs have separately."""
    model, instances = EXAMPLES[name]
    operators, vertices = OperatorModel(model), model.mini_batch(instances)
    found = operators.expand(vertices)
    read = Counter(vertices.segments[vertices.outputs].tolist())
    expected = Counter(
        {r: n * len(operators.get_template("output").applications) for r, n in read.items()}
    )
    for v, r in enumerate(vertices.segments.tolist()):
        name = vertices.graph.type_names[vertices.graph.types[v]]
        n_args = len(vertices.graph.select_args(v))
        template = operators.get_template(name, n_args if name in operators.variadic else None)
        expected[r] += len(template.applications)
    assert Counter(found.segments.tolist()) == expected
    assert found.segments[found.outputs].tolist() == vertices.segments[vertices.outputs].tolist()


@pytest.mark.parametrize("name", EXAMPLES)
def test_graphs_that_are_built_without_checks_pass_them(name: str) -> None:
    model, instances = EXAMPLES[name]
    operators = OperatorModel(model)
    for part in (instances, instances[:1], instances * 2):
        graph = operators.mini_batch(part).graph
        Graph(**{field.name: getattr(graph, field.name) for field in fields(Graph)})


def test_expansion_takes_as_many_calls_from_python_for_any_number_of_operators() -> None:
    """Otherwise presets at operator granularity would construct more slowly than others."""
    n_calls = []
    for name in ("var_lstm", "var_lstm_3"):
        model, instances = EXAMPLES[name]
        operators, vertices = OperatorModel(model), model.mini_batch(instances)
        operators.expand(vertices)  # compiles
        events: list[str] = []
        sys.setprofile(lambda _frame, event, _arg, events=events: events.append(event))
        try:
            operators.expand(vertices)
        finally:
            sys.setprofile(None)
        n_calls.append(sum("call" in event for event in events))
    assert n_calls[0] == n_calls[1]


Body = Callable[[VertexTracer], Symbol]


def traced(body: Body) -> VertexFunction:
    tracer = VertexTracer({"h": 4}, {"A": (4, 4)})
    tracer.scatter(h=body(tracer))
    return VertexFunction("body", tuple(tracer.builder.nodes), tuple(tracer.scattered.items()))


def written(function: VertexFunction, i: int | None = None) -> str:
    """Return a node of a function (its state h) as an expression."""
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


def test_child_independent_operators_are_computed_once() -> None:
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
    for function in trace_functions(EXAMPLES[name][0]).values():
        for n_edges in range(4):
            unrolled = unroll(function, n_edges)
            assert not is_variadic(unrolled)
            assert dict(unrolled.scatter).keys() == dict(function.scatter).keys()
            if is_variadic(function):
                assert any(node.domain == EDGE for node in function.nodes)
                assert unrolled.arity <= max(n_edges, function.arity)
            else:
                assert unrolled == function
