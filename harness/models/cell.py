"""Recurrent cells of ED-Batch's benchmark, with a separate matrix for each gate.

A cell reads states (x: word, h, c, T: a matrix, transposed) of one or two other vertices. The order
of the operators in the code decides where DyNet stores their results, but the paper does not show
it. The order here reproduces the paper's counts of copies.

Source: Chen et al., "ED-Batch", ICML 2023, Table 2; equations of the release's
benchmark/models/block.cc and treenn.cc. The GRU uses h where block.cc reads an unset value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.parts.trees import build_tree_mini_batch
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Tree
from dynbatch.harness.vertex import Symbol, VertexTracer, sigmoid, sum_elements, tanh
from dynbatch.harness.vertex.tracing import Child

States = Mapping[str, Symbol]
Body = Callable[[VertexTracer, Child, Child], States]


@dataclass(frozen=True, slots=True)
class Cell:
    """Description of a cell.

    Attributes:
        matrices: parameters of shape (h, h), except those in `wide`.
        biases: parameters of shape (h,).
        wide: parameters of shape (2 h, h).
    """

    body: Body
    reads: Sequence[str]
    gives: Sequence[str]
    matrices: Sequence[str]
    biases: Sequence[str]
    wide: Sequence[str] = field(default=())


def _apply_affine(v: VertexTracer, x: Symbol, gate: str, bias: str) -> Symbol:
    return x @ v.parameter(gate) + v.parameter(bias)


def compute_lstm(v: VertexTracer, word: Child, before: Child) -> States:
    """Compute gates i, f, o = s(W x + U h + b) and g = tanh(W x + U h + b), and the new states.

    c' = i g + f c; h' = o tanh c'.
    """
    of_x = {gate: word.x @ v.parameter(f"W_{gate}") for gate in "ifgo"}
    of_h = {gate: before.h @ v.parameter(f"U_{gate}") for gate in "ifgo"}
    i, f, g, o = (of_x[gate] + of_h[gate] + v.parameter(f"b_{gate}") for gate in "ifgo")
    c = sigmoid(i) * tanh(g) + sigmoid(f) * before.c
    return {"c": c, "h": sigmoid(o) * tanh(c)}


def compute_gru(v: VertexTracer, word: Child, before: Child) -> States:
    """Compute r, z = s(U h + W x + b); n = tanh(U_c (r h) + W_c x + b_c); h' = z h + (1 - z) n."""
    x, h = word.x, before.h
    r, z = (
        sigmoid(h @ v.parameter(f"U_{g}") + x @ v.parameter(f"W_{g}") + v.parameter(f"b_{g}"))
        for g in "rz"
    )
    n = tanh((r * h) @ v.parameter("U_c") + x @ v.parameter("W_c") + v.parameter("b_c"))
    return {"h": z * h + (1.0 - z) * n}


def compute_mv(v: VertexTracer, left: Child, right: Child) -> States:
    """Compute h = tanh(W [M_1 h_2; M_2 h_1] + b_h); M = A [M_1; M_2] + b_M, transposed."""
    width = left.h.shape[0]
    T_1, T_2 = left.as_matrix("T", width), right.as_matrix("T", width)
    crossed = v.concat(right.h @ T_1, left.h @ T_2)
    h = tanh(_apply_affine(v, crossed, "W", "b_h"))
    return {"h": h, "T": _apply_affine(v, _concatenate_columns(T_1, T_2), "A", "b_T")}


def _concatenate_columns(left: Symbol, right: Symbol) -> Symbol:
    """Concatenate two square matrices to [A B]; only blocks and the reference support this form."""
    width = left.shape[0]
    node = left.builder.add("concat", left.node, right.node, shape=(width, 2 * width))
    return Symbol(left.builder, node)


def compute_tree_lstm_leaf(v: VertexTracer, word: Child, _: Child) -> States:
    """Compute i, o = s(W x + b), u = tanh(W x + b); c = i u; h = o tanh c."""
    i, o, u = (_apply_affine(v, word.x, f"W_{gate}", f"b_{gate}") for gate in "iou")
    c = sigmoid(i) * tanh(u)
    return {"c": c, "h": sigmoid(o) * tanh(c)}


def compute_tree_lstm_internal(v: VertexTracer, left: Child, right: Child) -> States:
    """Compute gates i, o, u of [h_1; h_2] and f_k of h_k, and the new states.

    c = i u + f_1 c_1 + f_2 c_2; h = o tanh c.
    """
    both = v.concat(left.h, right.h)
    i = sigmoid(_apply_affine(v, both, "U_i", "b_i"))
    o = sigmoid(_apply_affine(v, both, "U_o", "b_o"))
    f_1 = sigmoid(_apply_affine(v, left.h, "F_1", "b_f"))
    f_2 = sigmoid(_apply_affine(v, right.h, "F_2", "b_f"))
    u = tanh(_apply_affine(v, both, "U_u", "b_u"))
    c = i * u + f_1 * left.c + f_2 * right.c
    return {"c": c, "h": o * tanh(c)}


def compute_tree_gru_leaf(v: VertexTracer, word: Child, _: Child) -> States:
    """Compute r, z = s(U x + b); c = tanh(U_c (r x) + b_c); h = z x + (1 - z) c."""
    return {"h": _compute_gru_step(v, word.x, ("U_r", "U_z", "U_c"))}


def compute_tree_gru_internal(v: VertexTracer, left: Child, right: Child) -> States:
    """Compute the mean of a GRU step on h_1 and one on h_2, each with its own gates.

    Both share U_c: the paper's 552 kB are too few for gathering one matrix for each step.
    """
    first = _compute_gru_step(v, left.h, ("U_r1", "U_z1", "U_c"))
    second = _compute_gru_step(v, right.h, ("U_r2", "U_z2", "U_c"))
    return {"h": 0.5 * (first + second)}


def _compute_gru_step(v: VertexTracer, h: Symbol, matrices: tuple[str, str, str]) -> Symbol:
    r = sigmoid(_apply_affine(v, h, matrices[0], "b_r"))
    z = sigmoid(_apply_affine(v, h, matrices[1], "b_z"))
    c = tanh(_apply_affine(v, r * h, matrices[2], "b_c"))
    return z * h + (1.0 - z) * c


CELLS: Mapping[str, Cell] = {
    "gru": Cell(
        compute_gru, "xh", "h", ("U_r", "W_r", "U_z", "W_z", "U_c", "W_c"), ("b_r", "b_z", "b_c")
    ),
    "lstm": Cell(
        compute_lstm,
        "xhc",
        "ch",
        [f"{kind}_{gate}" for kind in "WU" for gate in "ifgo"],
        ("b_i", "b_f", "b_g", "b_o"),
    ),
    "mv": Cell(compute_mv, "hT", "hT", ("W", "A"), ("b_h", "b_T"), wide=("W", "A")),
    "tree_gru_internal": Cell(
        compute_tree_gru_internal,
        "h",
        "h",
        ("U_r1", "U_z1", "U_r2", "U_z2", "U_c"),
        ("b_r", "b_z", "b_c"),
    ),
    "tree_gru_leaf": Cell(
        compute_tree_gru_leaf, "x", "h", ("U_r", "U_z", "U_c"), ("b_r", "b_z", "b_c")
    ),
    "tree_lstm_internal": Cell(
        compute_tree_lstm_internal,
        "hc",
        "ch",
        ("U_i", "U_o", "F_1", "F_2", "U_u"),
        ("b_i", "b_o", "b_f", "b_u"),
        wide=("U_i", "U_o", "U_u"),
    ),
    "tree_lstm_leaf": Cell(
        compute_tree_lstm_leaf, "x", "ch", ("W_i", "W_o", "W_u"), ("b_i", "b_o", "b_u")
    ),
}


class CellModel(Model):
    """Model of single cells: the instances are trees with two leaves.

    The root is the cell; the leaves look up the states that the cell reads.
    """

    name = "cell"
    instance_kind = "tree"
    vertex_types = ("given", "cell")

    def __init__(self, sizes: ModelSizes, cell: str = "tree_lstm_internal") -> None:
        if cell not in CELLS:
            raise ConfigError(
                f"model.options.cell={cell} is unknown; choose one of {', '.join(CELLS)}"
            )
        sizes.check_equal("cells mix embeddings and states")
        super().__init__(sizes, cell=cell)
        self.described = CELLS[cell]

    @property
    def state(self) -> Mapping[str, int]:
        h = self.sizes.hidden_size
        return {"x": h, "h": h, "c": h, "T": h * h}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, n_words = self.sizes.hidden_size, self.sizes.get_size("words")
        reads, wide = self.described.reads, self.described.wide
        given = {f"given_{s}": ParameterSpec((n_words, self.state[s]), 0.5) for s in reads}
        matrices = {
            name: ParameterSpec((2 * h if name in wide else h, h), h**-0.5)
            for name in self.described.matrices
        }
        biases = {name: ParameterSpec((h,), 0.1) for name in self.described.biases}
        return given | matrices | biases

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """Build a mini-batch with the cell of every instance as output.

        Raises:
            ConfigError: for a tree that does not have two leaves.
        """
        for tree in instances:
            if tree.n_leaves != 2:
                raise ConfigError(
                    f"model=cell expects trees of two leaves, got {tree.n_leaves}; use"
                    " dataset=complete_trees dataset.options.n_leaves=2"
                )
        return build_tree_mini_batch(instances, "roots", ("unbatchable", *self.vertex_types))

    def given(self, v: VertexTracer) -> None:
        """Look up the states that the cell reads."""
        word = v.pull("word")
        v.scatter(**{state: v.lookup(f"given_{state}", word) for state in self.described.reads})

    def cell(self, v: VertexTracer) -> None:
        """Compute the cell."""
        v.scatter(**self.described.body(v, v.gather(0), v.gather(1)))

    def output(self, v: VertexTracer) -> None:
        """Push all states of the cell; the loss is their sum, so that the cell can be trained."""
        cell = v.gather(0)
        states = [getattr(cell, state) for state in self.described.gives]
        shown = v.concat(*states) if len(states) > 1 else states[0]
        v.push(shown, loss=sum_elements(shown))
