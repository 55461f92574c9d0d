"""Child-sum Tree-LSTM in JAX: the cell of inner vertices, with a hand-written derivative."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dynbatch.systems.on_jax.models.layers import compute_cross_entropy
from dynbatch.systems.on_jax.models.trees import (
    ChildStates,
    Gradients,
    States,
    TreeNetwork,
    Weights,
    compute_tree_states,
    differentiate_gates,
)
from dynbatch.systems.on_jax.scan import Given


class ChildSumInner(NamedTuple):
    """Inner vertex; weights are U (h, 3 h), b (3 h,), U_f (h, h) and b_f (h,).

    The forget gates of both children are one matmul, with the rows of left children first.
    """

    def forward(self, weights: Weights, children: ChildStates) -> tuple[States, States]:
        """Return states h and c, and the gates."""
        (h_1, c_1), (h_2, c_2) = children
        i, o, u = jnp.split((h_1 + h_2) @ weights["U"] + weights["b"], 3, axis=1)
        i, o, u = jax.nn.sigmoid(i), jax.nn.sigmoid(o), jnp.tanh(u)
        forget = jnp.concatenate([h_1, h_2]) @ weights["U_f"] + weights["b_f"]
        f_1, f_2 = jnp.split(jax.nn.sigmoid(forget), 2)
        c = i * u + f_1 * c_1 + f_2 * c_2
        return (o * jnp.tanh(c), c), (i, o, u, f_1, f_2)

    def backward(
        self, weights: Weights, kept: States, own: States, children: ChildStates, d: States
    ) -> Gradients:
        """Return gradients of i, o and u, concatenated, and of f_1 and f_2, before activations."""
        gates, df_1, df_2, dc_1, dc_2 = differentiate_gates(kept, own, children, d)
        by_sum = gates @ weights["U"].T
        by_forget_1, by_forget_2 = jnp.split(jnp.concatenate([df_1, df_2]) @ weights["U_f"].T, 2)
        below = ChildStates((by_sum + by_forget_1, dc_1), (by_sum + by_forget_2, dc_2))
        return Gradients(below, (gates, df_1, df_2))

    def gradients(self, children: ChildStates, d: States) -> dict[str, Array]:
        """Compute the gradients with one matmul per matrix."""
        (h_1, _), (h_2, _) = children
        gates, df_1, df_2 = d
        forget = jnp.concatenate([df_1, df_2])
        return {
            "U": (h_1 + h_2).T @ gates,
            "b": gates.sum(0),
            "U_f": jnp.concatenate([h_1, h_2]).T @ forget,
            "b_f": forget.sum(0),
        }


class TreeLSTMChildSum(TreeNetwork):
    """Equations of dynbatch.harness.models.tree_lstm_child_sum, chunk by chunk."""

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and h of all rows."""
        weights, vectors, ids, sizes, _ = given
        gates = vectors["embedding"] @ weights["W"] + weights["b"]
        i, o, u = jnp.split(gates, 3, axis=1)
        c = jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        inner = {name: weights[name] for name in ("U", "b", "U_f", "b_f")}
        h, c = compute_tree_states(ChildSumInner(), sizes, inner, (h, c), ids)
        return compute_cross_entropy(self.outputs(weights, h), ids["labels"]), h


NETWORKS = {
    "tree_lstm_child_sum": TreeLSTMChildSum,
}
