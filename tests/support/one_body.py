"""Model of one vertex function, given as a function of two values, for tests of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.vertex import Symbol, VertexTracer, square, sum_elements
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.harness.vertex.tracing import trace
from tests.support.sketches import join_sketches

Body = Callable[[VertexTracer, Symbol, Symbol], Symbol]


def rows(v: VertexTracer) -> Symbol:
    """Return the children's states, each as a matrix."""
    return v.gather_each().as_matrix("h", 2)


def columns(x: Symbol, start: int, width: int) -> Symbol:
    """Return some columns of a value."""
    return Symbol(x.builder, x.builder.slice(x.node, start, width))


class OneBody(Model):
    """Model whose leaves scatter table rows, and whose vertices apply the body under test.

    The loss squares the outputs.
    """

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
        shapes |= {"A": (4, 4), "b": (4,), "C": (12, 4), "P": (2, 2), "Q": (2, 3), "p": (2,)}
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


def traced(body: Body) -> VertexFunction:
    """Return the function of a vertex with this body."""
    model = OneBody(body)
    return trace(model, "vertex", {name: spec.shape for name, spec in model.parameters.items()})
