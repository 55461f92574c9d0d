"""Instances written as typed graphs, and models of them that are difficult for an engine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    pick_neg_log_softmax,
    relu,
    sigmoid,
    spread,
    sum_edges,
    sum_elements,
    tanh,
)

SIZES = ModelSizes(4, {"words": 7, "characters": 6, "classes": 3}, embedding_size=3)


@dataclass(frozen=True)
class Sketch:
    """One instance: for every vertex the name of its type, and its arguments (earlier vertices)."""

    vertices: Sequence[tuple[str, Sequence[int]]]
    read: Sequence[int] = ()  # vertices that the output function reads; all vertices if empty

    @property
    def n_vertices(self) -> int:
        return len(self.vertices)


def some_forests() -> list[Sketch]:
    """Draw vertices with none to four children, some of which have several parents."""
    draw = random.Random(3)
    sizes = [draw.randint(1, 14) for _ in range(9)]
    return [
        Sketch([("vertex", draw.sample(range(k), draw.randint(0, min(k, 4)))) for k in range(n)])
        for n in sizes
    ]


class SketchModel(Model):
    """Model of sketches with a classifier on state h; subclasses define the vertex functions."""

    name = "sketch"
    instance_kind = "sketch"
    vertex_types: tuple[str, ...] = ("leaf", "inner")

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

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        """Return shapes of the parameters besides the embedding and the classifier."""
        return {}

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """Join sketches; words and labels follow from a vertex's position."""
        n_classes, n_words = map(self.sizes.get_size, ("classes", "words"))
        names = ("unbatchable", *self.vertex_types)
        types: list[int] = []
        args: list[list[int]] = []
        read: list[int] = []
        for sketch in instances:
            base = len(types)
            types += [names.index(name) for name, _ in sketch.vertices]
            args += [[base + a for a in own] for _, own in sketch.vertices]
            read += [base + v for v in (sketch.read or range(sketch.n_vertices))]
        position = np.concatenate([np.arange(s.n_vertices) for s in instances])
        return MiniBatch(
            graph=Graph(
                types=np.array(types, dtype=np.int32),
                arg_start=np.cumsum([0, *map(len, args)], dtype=np.int32),
                args=np.array([a for own in args for a in own], dtype=np.int32),
                type_names=names,
            ),
            pulls={
                "word": ((3 * position + 1) % n_words).astype(np.int32),
                "tag": ((position // 2) % n_words).astype(np.int32),
                "label": ((2 * position + 1) % n_classes).astype(np.int32),
            },
            outputs=np.array(read, dtype=np.int32),
            n_instances=len(instances),
        )

    def output(self, v: VertexTracer) -> None:
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))


class ChildSum(SketchModel):
    """Child-sum Tree-LSTM (Tai et al. 2015), an input at every vertex, any number of children."""

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


# --- difficult for an engine ---


class SharedChildren(SketchModel):
    """A DAG: values with several parents, the same child in two slots, sums of matmuls.

    The sums of matmuls may share memory. One is scattered, one is part of a concatenation, and one
    (in dF) has a term that is itself the gradient of a child.
    """

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "A": (h, h), "B": (h, h), "C": (2 * h, h), "b": (h,)}

    def leaf(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W") + v.parameter("b")
        v.scatter(c=x, h=tanh(x))

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        both = left.h + right.c
        summed = left.h @ v.parameter("A") + right.h @ v.parameter("B")
        mixed = both @ v.parameter("B") + right.c @ v.parameter("A")
        joined = v.concat(mixed, relu(left.c - right.h)) @ v.parameter("C")
        v.scatter(c=summed, h=tanh(joined + summed + v.parameter("b")))


class SharedSums(SketchModel):
    """Sums that a matmul could include, each with a reader that must not see the sum.

    They add a matmul to itself, to a part of a scattered matmul, to columns that overlap those of
    another reader, and (in dF) to a value that is already a child's gradient.
    """

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "A": (h, h), "B": (h, h), "C": (h, h), "M": (h, h // 2)}

    def leaf(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W")
        v.scatter(c=x, h=tanh(x))

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        shown = (left.c + right.h) @ v.parameter("A")
        low, high = v.split(shown, 2)
        doubled = right.h @ v.parameter("B")
        doubled = doubled + doubled
        narrow = left.h @ v.parameter("C")
        first, _ = v.split(narrow, 2)
        middle = v.slice_columns(narrow, 1, 2)
        to_shown = low + left.h @ v.parameter("M")
        to_first = first + right.h @ v.parameter("M")
        joined = v.concat(tanh(to_shown) * high, sigmoid(to_first) * tanh(middle))
        v.scatter(c=shown, h=tanh(joined + doubled))


class SeveralWidths(SketchModel):
    """Types that write states of different widths, one narrow and one wide, read by a third."""

    vertex_types = ("narrow", "wide", "inner")

    @property
    def state(self) -> Mapping[str, int]:
        return {"a": 2, "w": 6, "h": self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"N": (e, 2), "N_h": (2, h), "V": (e, 6), "V_h": (6, h), "M": (8, h), "P": (h, 2)}

    def narrow(self, v: VertexTracer) -> None:
        a = v.lookup("embedding", v.pull("word")) @ v.parameter("N")
        v.scatter(a=tanh(a), h=a @ v.parameter("N_h"))

    def wide(self, v: VertexTracer) -> None:
        w = sigmoid(v.lookup("embedding", v.pull("tag")) @ v.parameter("V"))
        v.scatter(w=w, h=w @ v.parameter("V_h"))

    def inner(self, v: VertexTracer) -> None:
        first, second = v.gather(0), v.gather(1)
        h = v.concat(first.a, second.w) @ v.parameter("M") + first.h * second.h
        v.scatter(h=tanh(h), a=tanh(h) @ v.parameter("P"))


class PassesOn(SketchModel):
    """Model that scatters a gathered state unchanged, and one value twice, and pushes a state."""

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (2 * h, h)}

    def leaf(self, v: VertexTracer) -> None:
        x = tanh(v.lookup("embedding", v.pull("word")) @ v.parameter("W"))
        v.scatter(c=x, h=x)

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        both = tanh(v.concat(left.h, right.h))  # a kernel with the states of two children
        v.scatter(c=left.c, h=tanh(both @ v.parameter("U")))

    def output(self, v: VertexTracer) -> None:
        state = v.gather(0)
        v.push(state.h, loss=sum_elements(state.c * state.h))


class PushesPart(PassesOn):
    """Model that pushes columns of a value that is not stored otherwise."""

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (2 * h, h), "V": (h, 2 * h)}

    def output(self, v: VertexTracer) -> None:
        left, right = v.split(v.gather(0).h @ v.parameter("V"), 2)
        v.push(left, loss=sum_elements(left * right))


class ShiftedParts(PassesOn):
    """Model that adds overlapping columns of the same value, the later ones first."""

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (2 * h, h), "V": (h, h + 1)}

    def output(self, v: VertexTracer) -> None:
        whole = v.gather(0).h @ v.parameter("V")
        h = self.sizes.hidden_size
        shown = v.slice_columns(whole, 1, h) + v.slice_columns(whole, 0, h)
        v.push(shown, loss=sum_elements(shown * shown))


class TwoPulls(SketchModel):
    """Model that looks up one table by two names of rows, and uses one matrix in two types."""

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (h, h), "b": (h,)}

    def leaf(self, v: VertexTracer) -> None:
        word, tag = v.lookup("embedding", v.pull("word")), v.lookup("embedding", v.pull("tag"))
        h = (word * tag) @ v.parameter("W")
        v.scatter(c=(h + v.parameter("b")) @ v.parameter("U"), h=tanh(h))

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        tag = v.lookup("embedding", v.pull("tag")) @ v.parameter("W")
        v.scatter(c=left.c + right.c, h=tanh(left.h @ v.parameter("U") + right.c + tag))


class Matrices(SketchModel):
    """States that are matrices, not square ones: matmuls, biases and kernels row by row.

    One vertex multiplies one matrix twice. One sum has a bias and a matmul, another one a bias on
    either side. One value is multiplied and also read by parents.
    """

    @property
    def state(self) -> Mapping[str, int]:
        return {"u": 2, "h": self.sizes.hidden_size, "T": 2 * self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        shapes = {"E": (e, 2), "H": (e, h), "M": (7, 2 * h), "A": (h, h), "B": (h, h), "b": (h,)}
        return shapes | {"C": (h, 2)}

    def leaf(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word"))
        v.scatter(u=x @ v.parameter("E"), h=x @ v.parameter("H"), T=v.lookup("M", v.pull("tag")))

    def inner(self, v: VertexTracer) -> None:
        left, right, b = v.gather(0), v.gather(1), v.parameter("b")
        S, T = left.as_matrix("T", 2), right.as_matrix("T", 2)
        h = tanh(left.u @ T + right.u @ T) * (right.u @ S)
        T = S @ v.parameter("A") + b + T @ v.parameter("B")
        T = tanh(T * S + b) @ v.parameter("B") + b
        v.scatter(u=tanh(h @ v.parameter("C")), h=tanh(left.u @ T + h), T=T)


class MatrixSum(SketchModel):
    """Matrices of any number of children: matmuls on the edges, and their sums."""

    vertex_types = ("vertex",)

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "T": 3 * self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"M": (7, 3 * h), "A": (h, h), "b": (h,), "C": (e, h)}

    def vertex(self, v: VertexTracer) -> None:
        x, each = v.lookup("embedding", v.pull("word")), v.gather_each()
        T = each.as_matrix("T", 3)
        own = v.lookup("M", v.pull("tag"))
        products = tanh(T @ v.parameter("A") + v.parameter("b"))
        h = x @ v.parameter("C") + sum_edges(spread(x) @ products) + sum_edges(each.h)
        v.scatter(h=tanh(h), T=own + v.concat(h, sum_edges(each.h), h))
