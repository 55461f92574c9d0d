"""Eager, recurrent and lazy operators, on models for which the answer is known (Cavs, Fig. 7)."""

from __future__ import annotations

import pytest

from harness.contracts.model import Model, traced_functions
from harness.errors import ConfigError
from harness.vertex import VertexTracer, tanh
from harness.vertex.autodiff import Gradient, differentiate
from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import Stage, VertexFunction, ancestors, descendants, find_stages
from harness.vertex.tracing import trace
from tests.support.engine_models import EXAMPLES


def _forward(function: VertexFunction) -> dict[Stage, list[Node]]:
    shown = [i for i in (function.push, function.loss) if i is not None]
    scattered = [i for _, i in function.scatter]
    return _grouped(
        function.nodes, find_stages(function.nodes, function.gathers(), scattered, shown)
    )


def _backward(gradient: Gradient) -> dict[Stage, list[Node]]:
    nodes = gradient.nodes
    incoming = [i for i, node in enumerate(nodes) if node.op == "state_gradient"]
    outgoing = [i for _, i in gradient.gathers]
    stages = find_stages(nodes, incoming, outgoing, gradient.sinks)
    return _grouped(nodes[gradient.n_forward :], stages[gradient.n_forward :])


def _grouped(nodes: tuple[Node, ...], stages: tuple[Stage, ...]) -> dict[Stage, list[Node]]:
    found: dict[Stage, list[Node]] = {stage: [] for stage in Stage}
    for node, stage in zip(nodes, stages, strict=True):
        found[stage].append(node)
    return found


def _ops(nodes: list[Node]) -> set[str]:
    return {node.op for node in nodes}


def _names(nodes: list[Node]) -> set[str]:
    return {node.name for node in nodes if node.op == "parameter"}


def _function(model: Model, name: str) -> VertexFunction:
    return traced_functions(model)[name]


def test_products_with_the_input_are_eager() -> None:
    stages = _forward(_function(EXAMPLES["child_sum"][0], "vertex"))
    # W x + b and W_f x + b_f, spread to the edges, wait for no child.
    assert _names(stages[Stage.EAGER]) >= {"embedding", "W", "b", "W_f", "b_f"}
    eager = [node.op for node in stages[Stage.EAGER]]
    assert eager.count("matmul") == 2
    assert {"pull", "lookup", "bias", "spread"} <= set(eager)
    assert stages[Stage.LAZY] == []
    assert stages[Stage.UNUSED] == []


def test_what_depends_on_children_is_recurrent() -> None:
    stages = _forward(_function(EXAMPLES["child_sum"][0], "vertex"))
    recurrent = [node.op for node in stages[Stage.RECURRENT]]
    assert recurrent.count("gather_each") == 2
    assert recurrent.count("matmul") == 2  # U h~ and U_f h_k
    assert recurrent.count("sum_edges") == 2
    assert {"sigmoid", "tanh", "mul"} <= set(recurrent)


def test_output_and_loss_are_lazy() -> None:
    stages = _forward(_function(EXAMPLES["child_sum"][0], "output"))
    assert stages[Stage.RECURRENT] == stages[Stage.EAGER] == []
    assert {"gather", "matmul", "pick_neg_log_softmax"} <= _ops(stages[Stage.LAZY])


def test_parameter_gradients_are_lazy_in_the_gradient() -> None:
    stages = _backward(differentiate(_function(EXAMPLES["child_sum"][0], "vertex")))
    sinks = [node for node in stages[Stage.LAZY] if OPERATORS[node.op].sink]
    assert {node.name for node in sinks} == {"embedding", "W", "b", "W_f", "b_f", "U", "U_f"}
    # Towards the input (dx = dy W^T) nobody scatters anything, so it can wait as well.
    transposed = [node for node in stages[Stage.LAZY] if node.op == "matmul_transposed"]
    assert len(transposed) == 2
    # Towards the children it cannot: dy U^T and dy U_f^T.
    recurrent = [node.op for node in stages[Stage.RECURRENT]]
    assert recurrent.count("matmul_transposed") == 2
    assert not any(OPERATORS[op].sink for op in recurrent)


def test_a_leaf_has_nothing_recurrent() -> None:
    stages = _forward(_function(EXAMPLES["tree_lstm"][0], "leaf"))
    assert stages[Stage.RECURRENT] == stages[Stage.LAZY] == []


def test_all_parameter_gradients_of_tree_lstm_are_lazy() -> None:
    for name in ("leaf", "internal", "output"):
        gradient = differentiate(_function(EXAMPLES["tree_lstm"][0], name))
        lazy = _backward(gradient)[Stage.LAZY]
        assert {gradient.nodes[i] for i in gradient.sinks} <= set(lazy)


def test_a_pushed_value_on_the_way_to_the_state_is_not_lazy() -> None:
    class Pushes:
        vertex_types = ("vertex",)
        state = {"h": 2}  # noqa: RUF012

        def vertex(self, v: VertexTracer) -> None:
            h = tanh(v.gather(0).h)
            tanh(v.zeros(2))  # computed for nobody
            v.scatter(h=h)
            v.push(h * h)

    stages = _forward(trace(Pushes(), "vertex", {}))
    assert [node.op for node in stages[Stage.RECURRENT]] == ["gather", "tanh"]
    assert [node.op for node in stages[Stage.LAZY]] == ["mul"]
    assert [node.op for node in stages[Stage.UNUSED]] == ["zeros", "tanh"]


@pytest.mark.parametrize(
    ("roots", "up", "down"),
    [({0}, {0}, {0, 2, 3}), ({2}, {0, 1, 2}, {2, 3}), ({1}, {1}, {1, 2, 3})],
)
def test_ancestors_and_descendants(roots: set[int], up: set[int], down: set[int]) -> None:
    nodes = [Node("zeros"), Node("ones"), Node("add", (0, 1)), Node("neg", (2,))]
    assert ancestors(nodes, roots) == up
    assert descendants(nodes, roots) == down


def test_functions_that_do_not_fit_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = EXAMPLES["tree_lstm"]

    def forgets_c(self: Model, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W")
        v.scatter(h=tanh(v.split(x, 3)[0]))

    def reads_a_child(self: Model, v: VertexTracer) -> None:
        v.push(v.gather(1).h)

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "leaf", forgets_c)
        patch.setattr(type(model), "internal", forgets_c)
        patch.setattr(type(model), "output", lambda self, v: v.push(v.gather(0).c))
        with pytest.raises(ConfigError, match="output gathers state c, which no vertex function"):
            traced_functions(model)
    monkeypatch.setattr(type(model), "output", reads_a_child)
    with pytest.raises(ConfigError, match=r"output gathers more than gather\(0\)"):
        traced_functions(model)
