"""Models as looms: their type shapes, their cells as batched ops, and the loss of their outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.parts.lstm import format_layer_suffix
from dynbatch.systems.on_tensorflow.cells import (
    CellFunctions,
    ChildSumCell,
    LSTMCell,
    apply_layer,
    apply_layer_to_children,
)
from dynbatch.systems.on_tensorflow.fold import LoomNetwork, Tensors
from dynbatch.systems.on_tensorflow.layers import (
    compute_cross_entropy,
    compute_linear_cross_entropy,
    compute_logits,
    look_up_vectors,
)
from dynbatch.systems.on_tensorflow.loom import OWN, Loom, LoomCall, LoomOp


class ClassifiedTrees(LoomNetwork):
    """A leaf and an internal cell, each with the classifier on top.

    Logits leave the loom when they are computed, and the loss is computed once over all of them.
    Logits are few numbers to pass through, whereas states would be many, and a loss inside the loom
    would need every label passed to its depth.
    """

    output_shape = "logits"

    def __init__(self, cell: CellFunctions, model: Model) -> None:
        self.cell = cell
        super().__init__(model)

    def make_loom(self, model: Model) -> Loom:
        """Build the loom; word vectors enter at depth 0 with a type shape of their own."""
        sizes = model.sizes
        self.h = sizes.hidden_size
        n_inputs = model.parameters["embedding"].shape[1]
        outputs = ("state", "logits")
        return Loom(
            {
                "logits": sizes.get_size("classes"),
                "state": 2 * self.h,
                "word": n_inputs,
            },
            [
                LoomOp("internal", ("state", "state"), outputs, self._run_internal),
                LoomOp("leaf", ("word",), outputs, self._run_leaf),
            ],
            (None, LoomCall("leaf", (OWN,)), LoomCall("internal", (0, 1))),
        )

    def make_inputs(self, weights: Tensors, words: Any) -> Tensors:
        return {"word": look_up_vectors(weights, words)}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        return compute_cross_entropy(outputs, labels)

    def _run_leaf(self, weights: Tensors, x: Any) -> tuple[Any, Any]:
        return self._classify_state(weights, self.cell.leaf(weights, x))

    def _run_internal(self, weights: Tensors, left: Any, right: Any) -> tuple[Any, Any]:
        return self._classify_state(weights, self.cell.internal(weights, left, right))

    def _classify_state(self, weights: Tensors, state: Any) -> tuple[Any, Any]:
        return state, state[:, self.h :] @ weights["W_out"]


class TreeFC(LoomNetwork):
    """Parameters of dynbatch.harness.models.tree_fc.

    Leaves of the variant "fold" are rows of the initial state, looked up before the loop. This
    saves one depth compared with Fold's own benchmark, in which an op looks them up. Leaves of the
    variant "cavs" apply the layer to zeros, which their op creates. Their rows at depth 0 have
    width 0 and only count the leaves, so that no zeros are gathered or have gradients.
    """

    output_shape = "state"

    def make_loom(self, model: Model) -> Loom:
        """Build the loom of the model's variant."""
        h = model.sizes.hidden_size
        joining = LoomOp("internal", ("state", "state"), ("state",), join_children)
        call = LoomCall("internal", (0, 1))
        if "embedding" in model.parameters:
            return Loom({"state": h}, [joining], (None, "state", call))
        return Loom(
            {"nothing": 0, "state": h},
            [joining, LoomOp("leaf", ("nothing",), ("state",), partial(apply_layer_to_zeros, h))],
            (None, LoomCall("leaf", (OWN,)), call),
        )

    def make_inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Return the word vectors of all leaves, if there is a table."""
        return {"state": look_up_vectors(weights, words)} if "embedding" in weights else {}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        return tf.nn.l2_loss(outputs)


def join_children(weights: Tensors, left: Any, right: Any) -> tuple[Any]:
    return (apply_layer_to_children(weights, left, right),)


def apply_layer_to_zeros(h: int, weights: Tensors, nothing: Any) -> tuple[Any]:
    """Apply the layer to zeros, with as many rows as `nothing`."""
    return (apply_layer(weights, tf.zeros((tf.shape(nothing)[0], 2 * h))),)


class VarLSTM(LoomNetwork):
    """A sentence is a chain of calls, with layer k one depth after layer k - 1.

    h of every word of the top layer leaves the loom and is passed through to its end, so that the
    words' distributions are computed once over all of them. Inside the loom, the matmul with the
    vocabulary and the gradient of its matrix would be computed again at every depth. The first word
    of a sentence calls the same op as all others, with a state of zeros.
    """

    output_shape = "h"

    def make_loom(self, model: Model) -> Loom:
        """Build the loom; c and h are separate type shapes, because only h leaves it."""
        sizes = model.sizes
        n_layers = len(model.vertex_types) // 2
        shapes = {"c": sizes.hidden_size, "h": sizes.hidden_size, "word": sizes.embedding_size}
        ops, vertices = [], []
        for k in range(1, n_layers + 1):
            name, x = f"step_{k}", "word" if k == 1 else "h"
            ops.append(LoomOp(name, (x, "h", "c"), ("h", "c"), make_step(format_layer_suffix(k))))
            first_x, x_source = (OWN, OWN) if k == 1 else (0, 1)
            vertices += [LoomCall(name, (first_x, OWN, OWN)), LoomCall(name, (x_source, 0, 0))]
        return Loom(shapes, ops, (None, *vertices))

    def make_inputs(self, weights: Tensors, words: Any) -> Tensors:
        return {"word": look_up_vectors(weights, words)}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        return compute_linear_cross_entropy(outputs, weights["W_out"], weights["b_out"], labels)

    def outputs(self, weights: Tensors, kept: Any) -> Any:
        return compute_logits(kept, weights["W_out"], weights["b_out"])


def make_step(suffix: str) -> Callable[..., tuple[Any, Any]]:
    """Return the cell of a layer: i, f, g, o = W x + U h + b; c' = f c + i g; h' = o tanh c'."""

    def step(weights: Tensors, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gates = x @ weights[f"W{suffix}"] + h @ weights[f"U{suffix}"]
        i, f, g, o = tf.split(tf.nn.bias_add(gates, weights[f"b{suffix}"]), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    return step


FOLD = {
    "tree_lstm": partial(ClassifiedTrees, LSTMCell),
    "tree_lstm_child_sum": partial(ClassifiedTrees, ChildSumCell),
    "tree_fc": TreeFC,
    "var_lstm": VarLSTM,
}
