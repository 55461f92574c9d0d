"""A value that is no number is named by the operator that makes it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.contracts.model import initial_weights
from harness.measuring.reference_check import origin_of_not_finite
from harness.vertex import Symbol, VertexTracer, exp, log, sqrt, tanh
from tests.support.sketch_models import SIZES, SketchModel
from tests.support.sketches import Sketch

CHAIN = Sketch([("vertex", []), ("vertex", [0]), ("vertex", [1])])


class Odd(SketchModel):
    """Its vertices scatter what `wild` makes of a small vector."""

    name = "odd"
    vertex_types = ("vertex",)

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h)}

    def wild(self, x: Symbol) -> Symbol:
        return x

    def vertex(self, v: VertexTracer) -> None:
        x = tanh(v.lookup("embedding", v.pull("word")) @ v.parameter("W"))
        v.scatter(c=x, h=self.wild(x))


class Logarithm(Odd):
    def wild(self, x: Symbol) -> Symbol:
        return tanh(log(x))


class Overflow(Odd):
    def wild(self, x: Symbol) -> Symbol:
        return exp(exp(x + 4.0) + 40.0)


class Root(Odd):
    """A root of zero: what is wrong is its derivative alone."""

    def wild(self, x: Symbol) -> Symbol:
        return sqrt(x - x)


@pytest.mark.parametrize(
    ("model", "mode", "origin"),
    [
        (Odd, "train", "the oracle is finite there, so the model is not at fault"),
        (Logarithm, "infer", "log of vertex is the first operator that is NaN"),
        (Overflow, "infer", "exp of vertex is the first operator that is infinite in float32"),
        (Root, "infer", "the oracle is finite there, so the model is not at fault"),
        (Root, "train", "of gradient of vertex is the first operator that is"),
    ],
)
def test_the_first_operator_is_named(model: type[Odd], mode: str, origin: str) -> None:
    built = model(SIZES)
    weights = initial_weights(built, 0)
    assert origin in origin_of_not_finite(built, weights, [CHAIN], mode)
