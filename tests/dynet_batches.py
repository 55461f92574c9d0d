"""Run as a program: a Tree-LSTM in real DyNet, its typed graph written to a file as JSON.

Arguments: DyNet's autobatch mode, and the file. DyNet itself prints every batch that it executes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dynet_config

dynet_config.set(mem="256", random_seed=1, autobatch=int(sys.argv[1]), profiling=2)
import dynet as dy  # noqa: E402 - settings are read when it is imported

from datasets.base import load_corpus  # noqa: E402

H = 4
SHAPES = {
    **dict.fromkeys(("W_i", "W_o", "W_u", "F_1", "F_2", "W_tie"), (H, H)),
    **dict.fromkeys(("U_i", "U_o", "U_u"), (H, 2 * H)),
    **dict.fromkeys(("b_i", "b_o", "b_u", "c_i", "c_o", "c_u", "b_f", "b_tie"), (H,)),
    "W_out": (5, H),
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

    def affine(self, bias: str, weight: str, x: tuple[Any, int]) -> tuple[Any, int]:
        inputs = (self.parameter(bias), self.parameter(weight), x)
        value = dy.affine_transform([expression for expression, _ in inputs])
        return self.add(value, f"affine {bias} {weight}", *inputs)

    def sigmoid(self, x: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(dy.logistic(x[0]), "sigmoid", x)

    def tanh(self, x: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(dy.tanh(x[0]), "tanh", x)

    def mul(self, x: tuple[Any, int], y: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(dy.cmult(x[0], y[0]), "mul", x, y)

    def plus(self, x: tuple[Any, int], y: tuple[Any, int]) -> tuple[Any, int]:
        return self.add(x[0] + y[0], "add", x, y)

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
                x = r.add(dy.lookup(r.table, int(word) % 100), "lookup")
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


if __name__ == "__main__":
    dy.renew_cg()
    recorder = Recorder()
    forward(recorder, n_trees=12)
    keys = ("types", "args", "cheap")
    Path(sys.argv[2]).write_text(json.dumps({key: getattr(recorder, key) for key in keys}))
