"""The recurrent cells of ED-Batch's benchmark, each gate with a matrix of its own.

A cell is given states (x: word, h, c, T: a matrix, transposed) of one or two others. The order in
which operators are written decides where DyNet puts their results; the paper does not show it. Here
it is one that leads to the paper's own counts of copies.

Source: Chen et al., "ED-Batch", ICML 2023, Table 2; equations of the release's
benchmark/models/block.cc and treenn.cc, the GRU's with h where the former reads an unset value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.contracts.model import Model, ModelSizes, ParameterSpec
from harness.errors import ConfigError
from harness.models.parts.trees import tree_mini_batch
from harness.values.graph import MiniBatch
from harness.values.instances import Tree
from harness.vertex import Symbol, VertexTracer, sigmoid, sum_elements, tanh
from harness.vertex.tracing import Child

States = Mapping[str, Symbol]
Body = Callable[[VertexTracer, Child, Child], States]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: what it computes, the states it reads and gives, and its parameters.

    matrices: h x h, but those in `wide`, which are 2 h x h. biases: of width h.
    """

    body: Body
    reads: Sequence[str]
    gives: Sequence[str]
    matrices: Sequence[str]
    biases: Sequence[str]
    wide: Sequence[str] = field(default=())


def _affine(v: VertexTracer, x: Symbol, gate: str, bias: str) -> Symbol:
    return x @ v.parameter(gate) + v.parameter(bias)


def lstm(v: VertexTracer, word: Child, before: Child) -> States:
    """i, f, o = s(W x + U h + b), g = tanh(W x + U h + b); c' = i g + f c; h' = o tanh c'."""
    of_x = {gate: word.x @ v.parameter(f"W_{gate}") for gate in "ifgo"}
    of_h = {gate: before.h @ v.parameter(f"U_{gate}") for gate in "ifgo"}
    i, f, g, o = (of_x[gate] + of_h[gate] + v.parameter(f"b_{gate}") for gate in "ifgo")
    c = sigmoid(i) * tanh(g) + sigmoid(f) * before.c
    return {"c": c, "h": sigmoid(o) * tanh(c)}


def gru(v: VertexTracer, word: Child, before: Child) -> States:
    """r, z = s(U h + W x + b); n = tanh(U_c (r h) + W_c x + b_c); h' = z h + (1 - z) n."""
    x, h = word.x, before.h
    r, z = (
        sigmoid(h @ v.parameter(f"U_{g}") + x @ v.parameter(f"W_{g}") + v.parameter(f"b_{g}"))
        for g in "rz"
    )
    n = tanh((r * h) @ v.parameter("U_c") + x @ v.parameter("W_c") + v.parameter("b_c"))
    return {"h": z * h + (1.0 - z) * n}


def mv(v: VertexTracer, left: Child, right: Child) -> States:
    """h = tanh(W [M_1 h_2; M_2 h_1] + b_h); M = A [M_1; M_2] + b_M, matrices transposed."""
    width = left.h.shape[0]
    T_1, T_2 = left.matrix("T", width), right.matrix("T", width)
    crossed = v.concat(right.h @ T_1, left.h @ T_2)
    h = tanh(_affine(v, crossed, "W", "b_h"))
    return {"h": h, "T": _affine(v, _side_by_side(T_1, T_2), "A", "b_T")}


def _side_by_side(left: Symbol, right: Symbol) -> Symbol:
    """[A B] of two square matrices; only blocks and the oracle know this form of concat."""
    width = left.shape[0]
    node = left.builder.add("concat", left.node, right.node, shape=(width, 2 * width))
    return Symbol(left.builder, node)


def tree_lstm_leaf(v: VertexTracer, word: Child, _: Child) -> States:
    """i, o = s(W x + b), u = tanh(W x + b); c = i u; h = o tanh c."""
    i, o, u = (_affine(v, word.x, f"W_{gate}", f"b_{gate}") for gate in "iou")
    c = sigmoid(i) * tanh(u)
    return {"c": c, "h": sigmoid(o) * tanh(c)}


def tree_lstm_internal(v: VertexTracer, left: Child, right: Child) -> States:
    """Gates i, o, u of [h_1; h_2], f_k of h_k; c = i u + f_1 c_1 + f_2 c_2; h = o tanh c."""
    both = v.concat(left.h, right.h)
    i = sigmoid(_affine(v, both, "U_i", "b_i"))
    o = sigmoid(_affine(v, both, "U_o", "b_o"))
    f_1 = sigmoid(_affine(v, left.h, "F_1", "b_f"))
    f_2 = sigmoid(_affine(v, right.h, "F_2", "b_f"))
    u = tanh(_affine(v, both, "U_u", "b_u"))
    c = i * u + f_1 * left.c + f_2 * right.c
    return {"c": c, "h": o * tanh(c)}


def tree_gru_leaf(v: VertexTracer, word: Child, _: Child) -> States:
    """r, z = s(U x + b); c = tanh(U_c (r x) + b_c); h = z x + (1 - z) c."""
    return {"h": _gru_step(v, word.x, ("U_r", "U_z", "U_c"))}


def tree_gru_internal(v: VertexTracer, left: Child, right: Child) -> States:
    """The same step on h_1 and on h_2, each with gates of its own, halved.

    Both share U_c: the paper's 552 kB leave no room for gathering a matrix for each of them.
    """
    first = _gru_step(v, left.h, ("U_r1", "U_z1", "U_c"))
    second = _gru_step(v, right.h, ("U_r2", "U_z2", "U_c"))
    return {"h": 0.5 * (first + second)}


def _gru_step(v: VertexTracer, h: Symbol, matrices: tuple[str, str, str]) -> Symbol:
    r = sigmoid(_affine(v, h, matrices[0], "b_r"))
    z = sigmoid(_affine(v, h, matrices[1], "b_z"))
    c = tanh(_affine(v, r * h, matrices[2], "b_c"))
    return z * h + (1.0 - z) * c


CELLS: Mapping[str, Cell] = {
    "gru": Cell(gru, "xh", "h", ("U_r", "W_r", "U_z", "W_z", "U_c", "W_c"), ("b_r", "b_z", "b_c")),
    "lstm": Cell(
        lstm,
        "xhc",
        "ch",
        [f"{kind}_{gate}" for kind in "WU" for gate in "ifgo"],
        ("b_i", "b_f", "b_g", "b_o"),
    ),
    "mv": Cell(mv, "hT", "hT", ("W", "A"), ("b_h", "b_T"), wide=("W", "A")),
    "tree_gru_internal": Cell(
        tree_gru_internal, "h", "h", ("U_r1", "U_z1", "U_r2", "U_z2", "U_c"), ("b_r", "b_z", "b_c")
    ),
    "tree_gru_leaf": Cell(tree_gru_leaf, "x", "h", ("U_r", "U_z", "U_c"), ("b_r", "b_z", "b_c")),
    "tree_lstm_internal": Cell(
        tree_lstm_internal,
        "hc",
        "ch",
        ("U_i", "U_o", "F_1", "F_2", "U_u"),
        ("b_i", "b_o", "b_f", "b_u"),
        wide=("U_i", "U_o", "U_u"),
    ),
    "tree_lstm_leaf": Cell(tree_lstm_leaf, "x", "ch", ("W_i", "W_o", "W_u"), ("b_i", "b_o", "b_u")),
}


class CellModel(Model):
    """A tree of two leaves is an instance: the root is the cell, leaves hold what it is given."""

    name = "cell"
    instance_kind = "tree"
    vertex_types = ("given", "cell")

    def __init__(self, sizes: ModelSizes, cell: str = "tree_lstm_internal") -> None:
        if cell not in CELLS:
            raise ConfigError(f"cell={cell} is unknown; choose one of {', '.join(CELLS)}")
        sizes.check_equal("cells mix words and states")
        super().__init__(sizes, cell=cell)
        self.described = CELLS[cell]

    @property
    def state(self) -> Mapping[str, int]:
        h = self.sizes.hidden_size
        return {"x": h, "h": h, "c": h, "T": h * h}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, n_words = self.sizes.hidden_size, self.sizes.of("words")
        reads, wide = self.described.reads, self.described.wide
        given = {f"given_{s}": ParameterSpec((n_words, self.state[s]), 0.5) for s in reads}
        matrices = {
            name: ParameterSpec((2 * h if name in wide else h, h), h**-0.5)
            for name in self.described.matrices
        }
        biases = {name: ParameterSpec((h,), 0.1) for name in self.described.biases}
        return given | matrices | biases

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """The cell of every instance is read from outside.

        Raises ConfigError for a tree of another size.
        """
        for tree in instances:
            if tree.n_leaves != 2:
                raise ConfigError(
                    f"model=cell takes trees of two leaves, not of {tree.n_leaves}; use"
                    " dataset=complete_trees dataset.options.n_leaves=2"
                )
        return tree_mini_batch(instances, "roots", ("unbatchable", *self.vertex_types))

    def given(self, v: VertexTracer) -> None:
        """Rows of tables."""
        word = v.pull("word")
        v.scatter(**{state: v.lookup(f"given_{state}", word) for state in self.described.reads})

    def cell(self, v: VertexTracer) -> None:
        """The cell itself."""
        v.scatter(**self.described.body(v, v.gather(0), v.gather(1)))

    def output(self, v: VertexTracer) -> None:
        """All that the cell computes; the loss is its sum, so that there is something to train."""
        cell = v.gather(0)
        states = [getattr(cell, state) for state in self.described.gives]
        shown = v.concat(*states) if len(states) > 1 else states[0]
        v.push(shown, loss=sum_elements(shown))
