"""Models of sketches: cells of chains and of forests that the harness itself does not have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    pick_neg_log_softmax,
    sigmoid,
    spread,
    sum_edges,
    tanh,
)
from tests.support.sketches import join_sketches

SIZES = ModelSizes(4, {"words": 7, "characters": 6, "classes": 3}, embedding_size=3)


class SketchModel(Model):
    """Model of sketches with a classifier on state h; subclasses define the vertex functions."""

    instance_kind = "sketch"

    @property
    def state(self) -> Mapping[str, int]:
        return {"c": self.sizes.hidden_size, "h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e, v = self.sizes.hidden_size, self.sizes.embedding_size, self.sizes.get_size("words")
        return (
            {"embedding": ParameterSpec((v, e), 1.0)}
            | {name: ParameterSpec(shape, 0.7) for name, shape in self.shapes(h, e).items()}
            | {"W_out": ParameterSpec((h, self.sizes.get_size("classes")), 0.7)}
        )

    @abstractmethod
    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        """Return shapes of the parameters besides the embedding and the classifier."""

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        n_classes, n_words = map(self.sizes.get_size, ("classes", "words"))
        return join_sketches(instances, self.vertex_types, n_classes, n_words)

    def output(self, v: VertexTracer) -> None:
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))


class ChildSum(SketchModel):
    """Child-sum Tree-LSTM (Tai et al. 2015), an input at every vertex, any number of children."""

    name = "child_sum"
    vertex_types = ("vertex",)

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        inputs = {"W": (e, 3 * h), "W_f": (e, h), "b": (3 * h,), "b_f": (h,)}
        return inputs | {"U": (h, 3 * h), "U_f": (h, h)}

    def vertex(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word"))
        children = v.gather_each()
        wx = x @ v.parameter("W") + v.parameter("b")
        i, o, u = v.split(wx + sum_edges(children.h) @ v.parameter("U"), 3)
        of_vertex = spread(x @ v.parameter("W_f") + v.parameter("b_f"))
        f = sigmoid(children.h @ v.parameter("U_f") + of_vertex)
        c = sigmoid(i) * tanh(u) + sum_edges(f * children.c)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))


class ChainLSTM(SketchModel):
    """LSTM over chains: a first vertex without a child, then one child each; W x is hoisted."""

    name = "chain_lstm"
    vertex_types = ("first", "step")

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, 4 * h), "U": (h, 4 * h), "b": (4 * h,)}

    def first(self, v: VertexTracer) -> None:
        i, o, u = self.gates(v, "iou", None)
        c = sigmoid(i) * tanh(u)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))

    def step(self, v: VertexTracer) -> None:
        child = v.gather(0)
        i, f, o, u = self.gates(v, "ifou", child.h)
        c = sigmoid(i) * tanh(u) + sigmoid(f) * child.c
        v.scatter(c=c, h=sigmoid(o) * tanh(c))

    def gates(self, v: VertexTracer, names: str, h: Symbol | None) -> list[Symbol]:
        """Return these gates of the word and of the child's h, before their sigmoid or tanh."""
        found = v.lookup("embedding", v.pull("word")) @ v.parameter("W")
        found = found if h is None else found + h @ v.parameter("U")
        parts = dict(zip("ifou", v.split(found + v.parameter("b"), 4), strict=True))
        return [parts[name] for name in names]


class GatesApart(ChainLSTM):
    """LSTM of ChainLSTM with a matrix and a bias per gate."""

    name = "gates_apart"

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {f"W_{gate}": (e, h) for gate in "ifou"}
        found |= {f"U_{gate}": (h, h) for gate in "ifou"}
        return found | {f"b_{gate}": (h,) for gate in "ifou"}

    def gates(self, v: VertexTracer, names: str, h: Symbol | None) -> list[Symbol]:
        x, found = v.lookup("embedding", v.pull("word")), []
        for name in names:
            gate = x @ v.parameter(f"W_{name}")
            gate = gate if h is None else gate + h @ v.parameter(f"U_{name}")
            found.append(gate + v.parameter(f"b_{name}"))
        return found
