"""TensorFlow's own LSTM over whole sentences: one operation for all steps of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from systems.on_tensorflow.parts.sentences import Batch, LayerWeights, Padded, Start


@dataclass(frozen=True)
class Blocks(Padded):
    """Rectangles, of which a layer is one BlockLSTM operation, forward and backward."""

    def run(
        self,
        batch: Batch,
        words: Sequence[Any],
        table: Any,
        layers: Sequence[tuple[LayerWeights, Start | None]],
    ) -> Any:
        """h of the top layer at every row; see Way.run."""
        found = []
        for some in words:
            rows = tf.nn.embedding_lookup(table, some)
            for weights, start in layers:
                rows = block_layer(rows, weights, start)
            found.append(tf.reshape(rows, (-1, rows.shape[2])))
        return tf.concat(found, 0) if len(found) > 1 else found[0]


def block_layer(x: Any, weights: LayerWeights, start: Start | None) -> Any:
    """h (T, k, h) of x (T, k, n_inputs), whose shape is known; weights, start: see lstm_layer.

    The operation multiplies [x, h] by [W; U] a step, and has its gates in the order i, g, f, o.
    """
    W, U, b = weights
    n_steps, k, _ = x.shape
    h = U.shape[0]
    h_0, c_0 = start or (tf.zeros(h), tf.zeros(h))
    unused = tf.zeros(h)  # weights of peepholes
    return tf.raw_ops.BlockLSTM(
        seq_len_max=tf.constant(n_steps, tf.int64),
        x=x,
        cs_prev=tf.broadcast_to(c_0, (k, h)),
        h_prev=tf.broadcast_to(h_0, (k, h)),
        w=_in_its_order(tf.concat([W, U], 0)),
        wci=unused,
        wcf=unused,
        wco=unused,
        b=_in_its_order(b),
        forget_bias=0.0,
        cell_clip=-1.0,
    ).h


def _in_its_order(columns: Any) -> Any:
    i, f, g, o = tf.split(columns, 4, axis=-1)
    return tf.concat([i, g, f, o], -1)
