"""TensorFlow with its own LSTM: one operation for all steps of a layer, padded by length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.checked import Count
from dynbatch.systems.on_tensorflow.runtime import Network, TensorFlowSystem
from dynbatch.systems.on_tensorflow.sentences import Layer, LayerWeights, Padded, Start


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """Options of padding.

    Attributes:
        buckets: maximum number of rectangles, each with sentences of similar length.
    """

    buckets: Count = 1


class Adapter(TensorFlowSystem):
    """Adapter with one trace per combination of shapes, each of few operations."""

    networks = "dynbatch.systems.on_tensorflow.models:SIDE_BY_SIDE"
    option_type = BlockOptions
    options: BlockOptions

    def _build(self, network: Callable[..., Network], model: Model) -> Network:
        return network(model, Blocks(self.options.buckets, round_up_to=1))


class Blocks(Padded):
    """Rectangles whose layers are one BlockLSTM operation, in forward and in backward."""

    def make_layer(self, n_steps: int, width: int) -> Layer:
        return partial(block_layer, (n_steps, width))


def block_layer(
    shape: tuple[int, int], rows: Any, weights: LayerWeights, start: Start | None
) -> Any:
    """Return h of every row (T k, h); for weights and start, see run_lstm_layer.

    The operation multiplies [x, h] by [W; U] in every step, and has the gate order i, g, f, o.

    Args:
        shape: T, k.
        rows: (T k, n_inputs), inputs.
    """
    W, U, b = weights
    n_steps, k = shape
    h = U.shape[0]
    h_0, c_0 = start or (tf.zeros(h), tf.zeros(h))
    unused = tf.zeros(h)  # peephole weights
    result = tf.raw_ops.BlockLSTM(
        seq_len_max=tf.constant(n_steps, tf.int64),
        x=tf.reshape(rows, (n_steps, k, W.shape[0])),
        cs_prev=tf.broadcast_to(c_0, (k, h)),
        h_prev=tf.broadcast_to(h_0, (k, h)),
        w=_reorder_gates(tf.concat([W, U], 0)),
        wci=unused,
        wcf=unused,
        wco=unused,
        b=_reorder_gates(b),
        forget_bias=0.0,
        cell_clip=-1.0,
    )
    return tf.reshape(result.h, (n_steps * k, h))


def _reorder_gates(columns: Any) -> Any:
    i, f, g, o = tf.split(columns, 4, axis=-1)
    return tf.concat([i, g, f, o], -1)
