"""Tree-FC as a loom: one op at internal vertices; what leaves are depends on the variant."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from harness.contracts.model import Model
from systems.on_tensorflow.loom.loop import Tensors
from systems.on_tensorflow.loom.network import LoomNetwork
from systems.on_tensorflow.loom.ops import OWN, Call, Loom, LoomOp
from systems.on_tensorflow.parts.classifier import word_vectors
from systems.on_tensorflow.parts.tree_cells import layer, layer_of_children


class Fold(LoomNetwork):
    """Parameters of harness.models.tree_fc.

    Leaves of the variant "fold" are rows of the initial state, looked up before the loop, one depth
    less than in Fold's own benchmark, where an op looks them up. Leaves of the variant "cavs" apply
    the layer to zeros, which their op makes itself: what enters at depth 0 only counts them, so
    that no zeros are gathered, and none have a gradient.
    """

    output_shape = "state"

    def make_loom(self, model: Model) -> Loom:
        """See the class."""
        h = model.sizes.hidden_size
        joining = LoomOp("internal", ("state", "state"), ("state",), internal)
        call = Call("internal", (0, 1))
        if "embedding" in model.parameters:
            return Loom({"state": h}, [joining], (None, "state", call))
        return Loom(
            {"nothing": 0, "state": h},
            [joining, LoomOp("leaf", ("nothing",), ("state",), partial(leaf, h))],
            (None, Call("leaf", (OWN,)), call),
        )

    def inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Word vectors of all leaves, where there is a table."""
        return {"state": word_vectors(weights, words)} if "embedding" in weights else {}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        """l2_loss of the roots."""
        return tf.nn.l2_loss(outputs)


def internal(weights: Tensors, left: Any, right: Any) -> tuple[Any]:
    """The layer on both children."""
    return (layer_of_children(weights, left, right),)


def leaf(h: int, weights: Tensors, nothing: Any) -> tuple[Any]:
    """The layer on zeros, as many as `nothing` has rows."""
    return (layer(weights, tf.zeros((tf.shape(nothing)[0], 2 * h))),)


FOLD = {"tree_fc": Fold}
