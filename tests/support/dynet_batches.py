"""Run as a program: a model in real DyNet, its typed graph written to a file as JSON.

Arguments: DyNet's autobatch mode, the file, and the model: tree_lstm, child_sum, bilstm, var_lstm,
or with "program" the adapter's own program of bilstm, bilstm_2 (two layers) or var_lstm, of which
nothing is written down. DyNet itself prints every batch that it executes.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import dynet_config

dynet_config.set(mem="256", random_seed=1, autobatch=int(sys.argv[1]), profiling=2)
import dynet as dy  # noqa: E402 - settings are read when it is imported

from harness.contracts.corpus import load_corpus  # noqa: E402
from tests.support.dynet_chains import (  # noqa: E402
    forward_bilstm,
    forward_var_lstm,
    run_program,
)
from tests.support.sketches import some_forests  # noqa: E402

H = 4
SHAPES = {
    **dict.fromkeys(("W_i", "W_o", "W_u", "F_1", "F_2", "W_tie"), (H, H)),
    **dict.fromkeys(("U_i", "U_o", "U_u"), (H, 2 * H)),
    **dict.fromkeys(("b_i", "b_o", "b_u", "c_i", "c_o", "c_u", "b_f", "b_tie"), (H,)),
    "W_out": (5, H),
    # Of the child-sum Tree-LSTM; names as in tests/support/sketch_models.py.
    **dict.fromkeys(("W", "U"), (3 * H, H)),
    **dict.fromkeys(("W_f", "U_f"), (H, H)),
    "b": (3 * H,),
    # Of the LSTMs along and against a sentence, and what stands on them.
    **dict.fromkeys(
        (f"{letter}_{d}" for letter in "WU" for d in ("forward", "backward")), (4 * H, H)
    ),
    **dict.fromkeys(("b_forward", "b_backward"), (4 * H,)),
    **dict.fromkeys((f"{s}_0_{d}" for s in "ch" for d in ("forward", "backward")), (H,)),
    **dict.fromkeys(("F_tag", "B_tag"), (H, H)),
    "b_tag": (H,),
    "W_words": (100, H),
    "b_words": (100,),
}


class Recorder:
    """Builds a DyNet graph and writes down types (signatures), arguments and cheap types."""

    def __init__(self) -> None:
        self.model = model = dy.ParameterCollection()  # must outlive its parameters
        self.table = model.add_lookup_parameters((100, H))
        self.weights = {name: model.add_parameters(shape) for name, shape in SHAPES.items()}
        self.parameters: dict[str, tuple[Any, int]] = {}
        self.names: list[str] = ["parameter"]
        self.cheap: list[bool] = [False]
        self.types: list[int] = []
        self.args: list[list[int]] = []

    def add(self, expression: Any, name: str, *args: tuple[Any, int]) -> tuple[Any, int]:
        """Write down one expression; affine transforms and products are not cheap."""
        if name not in self.names:
            self.names.append(name)
            self.cheap.append(not name.startswith(("affine", "matmul")))
        self.types.append(self.names.index(name))
        self.args.append([node for _, node in args])
        return expression, len(self.types) - 1

    def parameter(self, name: str) -> tuple[Any, int]:
        if name not in self.parameters:
            weight = self.weights[name].expr()
            self.parameters[name] = self.add(weight, "parameter")
        return self.parameters[name]

    def affine(self, bias: str, *terms: Any) -> tuple[Any, int]:
        """Bias, then weight and operand of every product."""
        inputs = [self.parameter(t) if isinstance(t, str) else t for t in (bias, *terms)]
        value = dy.affine_transform([expression for expression, _ in inputs])
        weights = " ".join(t for t in terms if isinstance(t, str))
        return self.add(value, f"affine {bias} {weights}", *inputs)

    def sigmoid(self, x: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(dy.logistic(x[0]), "sigmoid", x)

    def tanh(self, x: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(dy.tanh(x[0]), "tanh", x)

    def mul(self, x: tuple[Any, int], y: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(dy.cmult(x[0], y[0]), "mul", x, y)

    def plus(self, x: tuple[Any, int], y: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(x[0] + y[0], "add", x, y)

    def product(self, weight: str, x: tuple[Any, int]) -> tuple[Any, int]:
        matrix = self.parameter(weight)
        return self.add(matrix[0] * x[0], f"matmul {weight}", matrix, x)

    def lookup(self, word: int) -> tuple[Any, int]:
        return self.add(dy.lookup(self.table, word % 100), "lookup")

    def split(self, x: tuple[Any, int], n: int) -> list[tuple[Any, int]]:
        starts = range(0, n * H, H)
        return [self.add(dy.pick_range(x[0], s, s + H), f"slice {s}", x) for s in starts]

    def sum(self, parts: list[tuple[Any, int]]) -> tuple[Any, int]:
        """A sum of several has a type for each number of them."""
        if len(parts) == 1:
            return parts[0]
        return self.add(dy.esum([value for value, _ in parts]), f"sum of {len(parts)}", *parts)

    def loss(self, h: tuple[Any, int], label: int) -> tuple[Any, int]:
        weight = self.parameter("W_out")
        logits = self.add(weight[0] * h[0], "matmul", weight, h)
        return self.add(dy.pickneglogsoftmax(logits[0], label), "loss", logits)


def ties(r: Recorder) -> None:
    """Three types of equal average depth, the first not cheap, told apart by their sizes."""
    x = r.add(dy.lookup(r.table, 0), "lookup")
    for _ in range(2):
        r.affine("b_tie", "W_tie", x)
    for _ in range(3):
        r.add(dy.rectify(x[0]), "rectify", x)
    for _ in range(4):
        r.add(dy.exp(x[0]), "exp", x)


def forward(r: Recorder, n_trees: int) -> None:
    ties(r)
    losses = []
    for tree in load_corpus("datasets.sst_synthetic", "train", None, seed=0).instances[:n_trees]:
        states: list[Any] = []
        for word, label, left, right in zip(
            tree.words, tree.labels, tree.left, tree.right, strict=True
        ):
            if word >= 0:
                x = r.lookup(int(word))
                i, o, u = (r.affine(f"b_{gate}", f"W_{gate}", x) for gate in "iou")
                c = r.mul(r.sigmoid(i), r.tanh(u))
            else:
                (c_1, h_1), (c_2, h_2) = states[left], states[right]
                x = r.add(dy.concatenate([h_1[0], h_2[0]]), "concat", h_1, h_2)
                i, o, u = (r.affine(f"c_{gate}", f"U_{gate}", x) for gate in "iou")
                f_1, f_2 = r.affine("b_f", "F_1", h_1), r.affine("b_f", "F_2", h_2)
                kept = r.plus(r.mul(r.sigmoid(f_1), c_1), r.mul(r.sigmoid(f_2), c_2))
                c = r.plus(r.mul(r.sigmoid(i), r.tanh(u)), kept)
            h = r.mul(r.sigmoid(o), r.tanh(c))
            states.append((c, h))
            losses.append(r.loss(h, int(label)))
    r.add(dy.esum([loss for loss, _ in losses]), "sum", *losses)[0].forward()


def forward_child_sum(r: Recorder) -> None:
    losses = []
    for sketch in some_forests():
        states: list[Any] = []
        for k, (_, args) in enumerate(sketch.vertices):
            x, children = r.lookup(k), [states[a] for a in args]
            if children:
                summed = r.sum([h for _, h in children])
                own = r.affine("b_f", "W_f", x)
                gates = [r.sigmoid(r.plus(r.product("U_f", h), own)) for _, h in children]
                kept = r.sum([r.mul(f, c) for f, (c, _) in zip(gates, children, strict=True)])
            else:
                summed = kept = r.add(dy.zeros(H), "parameter")
            i, o, u = r.split(r.affine("b", "W", x, "U", summed), 3)
            c = r.plus(r.mul(r.sigmoid(i), r.tanh(u)), kept)
            h = r.mul(r.sigmoid(o), r.tanh(c))
            states.append((c, h))
            losses.append(r.loss(h, k % 5))
    r.add(dy.esum([loss for loss, _ in losses]), "sum", *losses)[0].forward()


FORWARD = {
    "tree_lstm": partial(forward, n_trees=12),
    "child_sum": forward_child_sum,
    "bilstm": forward_bilstm,
    "var_lstm": forward_var_lstm,
}

if __name__ == "__main__":
    if sys.argv[4:] == ["program"]:
        run_program(sys.argv[3])
        sys.exit()
    dy.renew_cg()
    recorder = Recorder()
    FORWARD[sys.argv[3]](recorder)
    keys = ("types", "args", "cheap", "names")
    Path(sys.argv[2]).write_text(json.dumps({key: getattr(recorder, key) for key in keys}))
