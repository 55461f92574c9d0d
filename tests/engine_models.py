"""Small models that exercise what Tree-LSTM and Tree-FC do not, and instances for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.graph import MiniBatch
from harness.instances import Tree, int_array
from harness.models.base import Model, ModelSizes, ParameterSpec
from harness.models.gated_lattice_lstm import GatedLatticeLSTM
from harness.models.lattice_gru import LatticeGRU
from harness.models.lattice_lstm import LatticeLSTM
from harness.models.mv_rnn import MVRNN
from harness.models.tree_fc import TreeFC
from harness.models.tree_gru import TreeGRU
from harness.models.tree_lstm import TreeLSTM
from harness.models.tree_lstm_2type import TreeLSTM2Type
from harness.vertex import (
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
from tests.lattices import LATTICES
from tests.sketches import Sketch, join_sketches

SIZES = ModelSizes(hidden_size=4, vocab_size=7, n_classes=3, embedding_size=3, n_characters=6)
EQUAL_SIZES = replace(SIZES, embedding_size=SIZES.hidden_size)


class SketchModel(Model):
    """A model of sketches with a classifier on state h; subclasses give the vertex functions."""

    instance_kind = "sketch"

    @property
    def state(self) -> Mapping[str, int]:
        return {"c": self.sizes.hidden_size, "h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e, v = self.sizes.hidden_size, self.sizes.embedding_size, self.sizes.vocab_size
        return (
            {"embedding": ParameterSpec((v, e), 1.0)}
            | {name: ParameterSpec(shape, 0.7) for name, shape in self.shapes(h, e).items()}
            | {"W_out": ParameterSpec((h, self.sizes.n_classes), 0.7)}
        )

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the parameters besides the embedding and the classifier."""
        raise NotImplementedError

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        return join_sketches(
            instances, self.vertex_types, self.sizes.n_classes, self.sizes.vocab_size
        )

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
    """LSTM over chains: a first vertex without a child, then one child each; W x is eager."""

    name = "chain_lstm"
    vertex_types = ("first", "step")

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, 4 * h), "U": (h, 4 * h), "b": (4 * h,)}

    def first(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word"))
        i, _, o, u = v.split(x @ v.parameter("W") + v.parameter("b"), 4)
        c = sigmoid(i) * tanh(u)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))

    def step(self, v: VertexTracer) -> None:
        x, child = v.lookup("embedding", v.pull("word")), v.gather(0)
        gates = x @ v.parameter("W") + child.h @ v.parameter("U") + v.parameter("b")
        i, f, o, u = v.split(gates, 4)
        c = sigmoid(i) * tanh(u) + sigmoid(f) * child.c
        v.scatter(c=c, h=sigmoid(o) * tanh(c))


class ChainGRU(SketchModel):
    """GRU over chains: h is multiplied by a matrix, and read element by element as well."""

    name = "chain_gru"
    vertex_types = ("first", "step")

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, 2 * h), "U": (h, 2 * h), "b": (2 * h,), "W_n": (e, h), "U_n": (h, h)}

    def first(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word"))
        v.scatter(h=tanh(x @ v.parameter("W_n")))

    def step(self, v: VertexTracer) -> None:
        x, h = v.lookup("embedding", v.pull("word")), v.gather(0).h
        gates = x @ v.parameter("W") + h @ v.parameter("U") + v.parameter("b")
        r, z = v.split(sigmoid(gates), 2)
        new = tanh(x @ v.parameter("W_n") + (r * h) @ v.parameter("U_n"))
        v.scatter(h=new - z * new + z * h)


class SharedChildren(SketchModel):
    """A DAG: values read by several parents, the same child in two slots, sums of products.

    Sums of products, which may share memory: one is scattered, one is part of a concatenation, and
    (in dF) one has a part that is itself the gradient of a child.
    """

    name = "shared_children"
    vertex_types = ("leaf", "inner")

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
    """Sums that a product could do on its way out, each with a reader who must not see it done.

    A product added to itself, to a part of a product that is scattered, to columns that overlap
    those of another reader; and (in dF) to a value that is a child's gradient already.
    """

    name = "shared_sums"
    vertex_types = ("leaf", "inner")

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
        middle = Symbol(narrow.builder, narrow.builder.slice(narrow.node, 1, 2))
        to_shown = low + left.h @ v.parameter("M")
        to_first = first + right.h @ v.parameter("M")
        joined = v.concat(tanh(to_shown) * high, sigmoid(to_first) * tanh(middle))
        v.scatter(c=shown, h=tanh(joined + doubled))


class SeveralWidths(SketchModel):
    """Types that write states of different widths, one narrow and one wide, read by a third."""

    name = "several_widths"
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
    """Scatters a gathered state unchanged, one value twice, and pushes a state as it is."""

    name = "passes_on"
    vertex_types = ("leaf", "inner")

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (2 * h, h)}

    def leaf(self, v: VertexTracer) -> None:
        x = tanh(v.lookup("embedding", v.pull("word")) @ v.parameter("W"))
        v.scatter(c=x, h=x)

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        both = tanh(v.concat(left.h, right.h))  # a kernel over two children's states
        v.scatter(c=left.c, h=tanh(both @ v.parameter("U")))

    def output(self, v: VertexTracer) -> None:
        state = v.gather(0)
        v.push(state.h, loss=sum_elements(state.c * state.h))


class TwoPulls(SketchModel):
    """Looks up one table by two names of rows, and shares one matrix between two types."""

    name = "two_pulls"
    vertex_types = ("leaf", "inner")

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
    """States that are matrices, not square ones: products, biases and kernels row by row.

    One vertex multiplies one matrix twice; one sum has a bias and a product, another a bias on
    either side; a value is multiplied and shown to parents.
    """

    name = "matrices"
    vertex_types = ("leaf", "inner")

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
        S, T = left.matrix("T", 2), right.matrix("T", 2)
        h = tanh(left.u @ T + right.u @ T) * (right.u @ S)
        T = S @ v.parameter("A") + b + T @ v.parameter("B")
        T = tanh(T * S + b) @ v.parameter("B") + b
        v.scatter(u=tanh(h @ v.parameter("C")), h=tanh(left.u @ T + h), T=T)


class MatrixSum(SketchModel):
    """Matrices of any number of children: products on the edges, and their sums."""

    name = "matrix_sum"
    vertex_types = ("vertex",)

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "T": 3 * self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"M": (7, 3 * h), "A": (h, h), "b": (h,), "C": (e, h)}

    def vertex(self, v: VertexTracer) -> None:
        x, each = v.lookup("embedding", v.pull("word")), v.gather_each()
        T = each.matrix("T", 3)
        own = v.lookup("M", v.pull("tag"))
        products = tanh(T @ v.parameter("A") + v.parameter("b"))
        h = x @ v.parameter("C") + sum_edges(spread(x) @ products) + sum_edges(each.h)
        v.scatter(h=tanh(h), T=own + v.concat(h, sum_edges(each.h), h))


CHAINS = [Sketch([("first", [])] + [("step", [k]) for k in range(n - 1)]) for n in (3, 1, 4, 2)]
BINARY = [
    Sketch([("leaf", []), ("leaf", []), ("inner", [0, 1]), ("inner", [2, 2]), ("inner", [2, 0])]),
    Sketch([("leaf", [])]),
    Sketch([("leaf", []), ("inner", [0, 0]), ("inner", [1, 0]), ("inner", [2, 1])], read=(3, 1)),
]
FORESTS = [
    Sketch([("vertex", a) for a in ([], [], [], [0, 1, 2], [], [3, 4], [5])], read=(6,)),
    Sketch([("vertex", [])]),
    Sketch([("vertex", a) for a in ([], [0], [1], [], [2, 3])]),
]
WIDTHS = [
    Sketch(
        [
            ("narrow", []),
            ("wide", []),
            ("inner", [0, 1]),
            ("inner", [2, 1]),
            ("wide", []),
            ("narrow", []),
        ]
    ),
    Sketch([("wide", []), ("narrow", []), ("inner", [1, 0])], read=(2,)),
]


def tree(words: Sequence[int], left: Sequence[int], right: Sequence[int]) -> Tree:
    """Build a tree whose labels follow from the positions of its vertices."""
    labels = (np.arange(len(words)) * 2 + 1) % SIZES.n_classes
    return Tree(*map(int_array, (words, labels, left, right)))


TREES = [
    tree([1, 2, -1, 2, -1], [-1, -1, 0, -1, 2], [-1, -1, 1, -1, 3]),
    tree([5], [-1], [-1]),
    tree([0, 6, 3, -1, -1], [-1, -1, -1, 1, 0], [-1, -1, -1, 2, 3]),
]

EXAMPLES: dict[str, tuple[Model, list[Any]]] = {
    "tree_lstm": (TreeLSTM(SIZES), TREES),
    "tree_fc_fold": (TreeFC(SIZES, variant="fold"), TREES),
    "tree_fc_cavs": (TreeFC(SIZES, variant="cavs"), TREES),
    "mv_rnn": (MVRNN(ModelSizes(hidden_size=4, vocab_size=7, n_classes=3)), TREES),
    "matrices": (Matrices(SIZES), BINARY),
    "matrix_sum": (MatrixSum(SIZES), FORESTS),
    "child_sum": (ChildSum(SIZES), FORESTS),
    "chain_lstm": (ChainLSTM(SIZES), CHAINS),
    "chain_gru": (ChainGRU(SIZES), CHAINS),
    "shared_children": (SharedChildren(SIZES), BINARY),
    "shared_sums": (SharedSums(SIZES), BINARY),
    "several_widths": (SeveralWidths(SIZES), WIDTHS),
    "passes_on": (PassesOn(SIZES), BINARY),
    "two_pulls": (TwoPulls(SIZES), BINARY),
    "tree_gru": (TreeGRU(EQUAL_SIZES), TREES),
    "tree_lstm_2type": (TreeLSTM2Type(SIZES), TREES),
    "lattice_lstm": (LatticeLSTM(SIZES), list(LATTICES)),
    "lattice_gru": (LatticeGRU(SIZES), list(LATTICES)),
    "gated_lattice_lstm": (GatedLatticeLSTM(SIZES), list(LATTICES)),
}
