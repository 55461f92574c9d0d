"""Model of one vertex function, given as a function of two values, for tests of operators.

Central differences are an independent check of symbolic gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.vertex import Symbol, VertexTracer, square, sum_elements
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.harness.vertex.tracing import trace
from tests.support.sketch_models import SketchModel

Body = Callable[[VertexTracer, Symbol, Symbol], Symbol]
Array = NDArray[Any]
STEP = 1e-5


def rows(v: VertexTracer) -> Symbol:
    """Return the children's states, each as a matrix."""
    return v.gather_each().as_matrix("h", 2)


def columns(x: Symbol, start: int, width: int) -> Symbol:
    return Symbol(x.builder, x.builder.slice(x.node, start, width))


class OneBody(SketchModel):
    """Model whose leaves scatter table rows, and whose vertices apply the body under test.

    The loss squares the outputs.
    """

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


def wrong_gradients(
    loss: Callable[[Mapping[str, Array]], float],
    weights: Mapping[str, Array],
    gradients: Mapping[str, Array],
) -> list[str]:
    """Return a line for each wrong entry of the gradients."""
    wrong = [f"no gradient of {name}" for name in weights if name not in gradients]
    wrong += [f"{name} is no parameter" for name in gradients if name not in weights]
    values = {name: np.array(value, dtype=np.float64) for name, value in weights.items()}
    for name, value in values.items():
        if name not in gradients:
            continue
        flat, found = value.reshape(-1), np.asarray(gradients[name]).reshape(-1)
        for k in range(flat.size):
            kept = flat[k]
            flat[k] = kept + STEP
            above = loss(values)
            flat[k] = kept - STEP
            below = loss(values)
            flat[k] = kept
            expected = (above - below) / (2 * STEP)
            if not np.isclose(found[k], expected, rtol=1e-5, atol=1e-7):
                wrong.append(f"{name}[{k}]: {found[k]:.10g}, by differences {expected:.10g}")
    return wrong
