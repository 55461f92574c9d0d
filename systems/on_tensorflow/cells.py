"""Cells of the tree models, for batches of any size, including single vertices.

A state of a Tree-LSTM is the row [c; h]; the classifier reads h.
"""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from dynbatch.systems.on_tensorflow.runtime import Variables


class CellFunctions(Protocol):
    """Cells of a model, as a class with static methods."""

    def leaf(self, weights: Variables, x: Any) -> Any:
        """Return the states of leaves."""

    def internal(self, weights: Variables, left: Any, right: Any) -> Any:
        """Return the states of internal vertices."""


class LSTMCell:
    """Cells of dynbatch.harness.models.tree_lstm."""

    @staticmethod
    def leaf(weights: Variables, x: Any) -> Any:
        """Compute i, o = s(W x + b), u = tanh(W x + b); c = i u; h = o tanh c."""
        i, o, u = tf.split(tf.nn.bias_add(x @ weights["W"], weights["b_leaf"]), 3, axis=1)
        return _compute_lstm_state(tf.sigmoid(i) * tf.tanh(u), o)

    @staticmethod
    def internal(weights: Variables, left: Any, right: Any) -> Any:
        """Compute f_k = s(F_k h_k + b_f); c = i u + f_1 c_1 + f_2 c_2; h = o tanh c."""
        c_1, h_1 = tf.split(left, 2, axis=1)
        c_2, h_2 = tf.split(right, 2, axis=1)
        both = tf.concat([h_1, h_2], axis=1)
        i, o, u = tf.split(tf.nn.bias_add(both @ weights["U"], weights["b"]), 3, axis=1)
        f_1 = tf.sigmoid(tf.nn.bias_add(h_1 @ weights["F_1"], weights["b_f"]))
        f_2 = tf.sigmoid(tf.nn.bias_add(h_2 @ weights["F_2"], weights["b_f"]))
        return _compute_lstm_state(tf.sigmoid(i) * tf.tanh(u) + f_1 * c_1 + f_2 * c_2, o)


class ChildSumCell:
    """Cells of dynbatch.harness.models.tree_lstm_child_sum."""

    @staticmethod
    def leaf(weights: Variables, x: Any) -> Any:
        """Compute i, o = s(W x + b), u = tanh(W x + b); c = i u; h = o tanh c."""
        i, o, u = tf.split(tf.nn.bias_add(x @ weights["W"], weights["b"]), 3, axis=1)
        return _compute_lstm_state(tf.sigmoid(i) * tf.tanh(u), o)

    @staticmethod
    def internal(weights: Variables, left: Any, right: Any) -> Any:
        """Compute f_k = s(U_f h_k + b_f); c = i u + f_1 c_1 + f_2 c_2; h = o tanh c."""
        c_1, h_1 = tf.split(left, 2, axis=1)
        c_2, h_2 = tf.split(right, 2, axis=1)
        gates = tf.nn.bias_add((h_1 + h_2) @ weights["U"], weights["b"])
        i, o, u = tf.split(gates, 3, axis=1)
        forget = tf.nn.bias_add(tf.concat([h_1, h_2], axis=0) @ weights["U_f"], weights["b_f"])
        f_1, f_2 = tf.split(tf.sigmoid(forget), 2, axis=0)
        return _compute_lstm_state(tf.sigmoid(i) * tf.tanh(u) + f_1 * c_1 + f_2 * c_2, o)


def _compute_lstm_state(c: Any, o: Any) -> Any:
    return tf.concat([c, tf.sigmoid(o) * tf.tanh(c)], axis=1)


def apply_layer_to_children(weights: Variables, left: Any, right: Any) -> Any:
    """Compute h = relu([h_1; h_2] W + b) of Tree-FC."""
    return apply_layer(weights, tf.concat([left, right], axis=1))


def apply_layer(weights: Variables, x: Any) -> Any:
    return tf.nn.relu(tf.nn.bias_add(x @ weights["W"], weights["b"]))
