"""Binary Tree-GRU as a loom: a leaf and an internal cell, each with the classifier on top."""

from __future__ import annotations

from typing import Any

from harness.contracts.model import Model
from systems.on_tensorflow.loom.loop import Tensors
from systems.on_tensorflow.loom.network import LoomNetwork
from systems.on_tensorflow.loom.ops import OWN, Call, Loom, LoomOp
from systems.on_tensorflow.parts.classifier import summed_loss, word_vectors
from systems.on_tensorflow.parts.tree_cells import gru_internal, gru_leaf


class Fold(LoomNetwork):
    """Parameters of harness.models.tree_gru."""

    output_shape = "logits"

    def make_loom(self, model: Model) -> Loom:
        """A word's vector enters at depth 0, with a tag of its own: a state is no word."""
        h = model.sizes.hidden_size
        return Loom(
            {"logits": model.sizes.of("classes"), "state": h, "word": h},
            [
                LoomOp("internal", ("state", "state"), ("state", "logits"), internal),
                LoomOp("leaf", ("word",), ("state", "logits"), leaf),
            ],
            (None, Call("leaf", (OWN,)), Call("internal", (0, 1))),
        )

    def inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Word vectors of all leaves."""
        return {"word": word_vectors(weights, words)}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        """Of the classifier at every vertex."""
        return summed_loss(outputs, labels)


def leaf(weights: Tensors, x: Any) -> tuple[Any, Any]:
    """State and logits of leaves."""
    return _classified(weights, gru_leaf(weights, x))


def internal(weights: Tensors, left: Any, right: Any) -> tuple[Any, Any]:
    """State and logits of internal vertices."""
    return _classified(weights, gru_internal(weights, left, right))


def _classified(weights: Tensors, h: Any) -> tuple[Any, Any]:
    return h, h @ weights["W_out"]
