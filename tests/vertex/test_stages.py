"""Eager, recurrent and lazy operators of models with known answers (Cavs, Fig. 7)."""

from __future__ import annotations

import pytest

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.vertex import VertexTracer, tanh
from dynbatch.harness.vertex.program import OperatorStage, find_stages
from dynbatch.harness.vertex.tracing import trace
from tests.support.engine_models import EXAMPLES

# For the stages of whole models see tests/engine/test_lowering.py.


def test_a_pushed_value_on_the_way_to_the_state_is_not_lazy() -> None:
    class Pushes:
        vertex_types = ("vertex",)
        state = {"h": 2}  # noqa: RUF012

        def vertex(self, v: VertexTracer) -> None:
            h = tanh(v.gather(0).h)
            tanh(v.zeros(2))  # computed, but never read
            v.scatter(h=h)
            v.push(h * h)

    function = trace(Pushes(), "vertex", {})
    scattered, shown = [i for _, i in function.scatter], [function.push or 0]
    stages = find_stages(function.nodes, function.find_gathers(), scattered, shown)
    found = {stage: [n.op for n, s in zip(function.nodes, stages, strict=True) if s is stage]
             for stage in OperatorStage}  # fmt: skip
    assert found[OperatorStage.RECURRENT] == ["gather", "tanh"]
    assert found[OperatorStage.LAZY] == ["mul"]
    assert found[OperatorStage.UNUSED] == ["zeros", "tanh"]


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
            trace_functions(model)
    monkeypatch.setattr(type(model), "output", reads_a_child)
    with pytest.raises(ConfigError, match=r"output gathers more than gather\(0\)"):
        trace_functions(model)
