"""Cells of the tree models, for batches of any size, including single vertices.

A state has n_parts vectors of h numbers, concatenated; the classifier reads the last one.
"""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from dynbatch.systems.on_tensorflow.runtime import Variables


class CellFunctions(Protocol):
    """Cells of a model, as a class with static methods."""

    n_parts: int

    def leaf(self, weights: Variables, x: Any) -> Any:
        """Return the states of leaves."""

    def internal(self, weights: Variables, left: Any, right: Any) -> Any:
        """Return the states of internal vertices."""


class LSTMCell:
    """Cells of dynbatch.harness.models.tree_lstm; a state is the row [c; h]."""

    n_parts = 2

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
    """Cells of dynbatch.harness.models.tree_lstm_child_sum; a state is the row [c; h]."""

    n_parts = 2

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


class GRUCell:
    """Cells of dynbatch.harness.models.tree_gru."""

    n_parts = 1

    @staticmethod
    def leaf(weights: Variables, x: Any) -> Any:
        """Compute r, z = s(W x + b); c = tanh(W_c (r x) + b_c); h = z x + (1 - z) c."""
        return _step_gru(weights, x, ("W", "W_c"), ("b_leaf", "b_leaf_c"))

    @staticmethod
    def internal(weights: Variables, left: Any, right: Any) -> Any:
        """Compute the mean of the steps on h_1 and on h_2."""
        first = _step_gru(weights, left, ("U_1", "U_c1"), ("b", "b_c"))
        second = _step_gru(weights, right, ("U_2", "U_c2"), ("b", "b_c"))
        return 0.5 * (first + second)


def _step_gru(
    weights: Variables, h: Any, matrices: tuple[str, str], biases: tuple[str, str]
) -> Any:
    gates = tf.nn.bias_add(h @ weights[matrices[0]], weights[biases[0]])
    r, z = tf.split(tf.sigmoid(gates), 2, axis=1)
    c = tf.tanh(tf.nn.bias_add((r * h) @ weights[matrices[1]], weights[biases[1]]))
    return c + z * (h - c)


def apply_layer_to_children(weights: Variables, left: Any, right: Any) -> Any:
    """Compute h = relu([h_1; h_2] W + b) of Tree-FC."""
    return apply_layer(weights, tf.concat([left, right], axis=1))


def apply_layer(weights: Variables, x: Any) -> Any:
    return tf.nn.relu(tf.nn.bias_add(x @ weights["W"], weights["b"]))
