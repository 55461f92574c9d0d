"""Binary Tree-LSTM in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from systems.on_jax.parts.losses import picked
from systems.on_jax.parts.tree_network import TreeNetwork
from systems.on_jax.parts.tree_rows import TreeSizes
from systems.on_jax.parts.trees import Children, States, Weights, tree_states


class Inner(NamedTuple):
    """An inner vertex; weights are left, right (h, 4 h), b (3 h,) and b_f (h,).

    Each child is multiplied once: columns are i, o, u, and its own forget gate.
    """

    h: int

    def forward(self, weights: Weights, children: Children) -> tuple[States, States]:
        """States h and c, and the gates."""
        (h_1, c_1), (h_2, c_2) = children
        n = 3 * self.h
        left, right = h_1 @ weights["left"], h_2 @ weights["right"]
        i, o, u = jnp.split(left[:, :n] + right[:, :n] + weights["b"], 3, axis=1)
        i, o, u = jax.nn.sigmoid(i), jax.nn.sigmoid(o), jnp.tanh(u)
        f_1 = jax.nn.sigmoid(left[:, n:] + weights["b_f"])
        f_2 = jax.nn.sigmoid(right[:, n:] + weights["b_f"])
        c = i * u + f_1 * c_1 + f_2 * c_2
        return (o * jnp.tanh(c), c), (i, o, u, f_1, f_2)

    def backward(
        self, weights: Weights, kept: States, own: States, children: Children, d: States
    ) -> tuple[Children, States]:
        """Gradients of the gates before their non-linearities; of both forget gates apart."""
        i, o, u, f_1, f_2 = kept
        (_, c_1), (_, c_2) = children
        dh, dc = d
        tanh_c = jnp.tanh(own[1])
        dc = dc + dh * o * (1 - tanh_c * tanh_c)
        di, do, du = dc * u * i * (1 - i), dh * tanh_c * o * (1 - o), dc * i * (1 - u * u)
        df_1, df_2 = dc * c_1 * f_1 * (1 - f_1), dc * c_2 * f_2 * (1 - f_2)
        left = jnp.concatenate([di, do, du, df_1], axis=1)
        right = jnp.concatenate([di, do, du, df_2], axis=1)
        below = Children(
            (left @ weights["left"].T, dc * f_1), (right @ weights["right"].T, dc * f_2)
        )
        return below, (left, right)

    def gradients(self, children: Children, kept: States, d: States) -> dict[str, Array]:
        """One product for each child."""
        left, right = d
        n = 3 * self.h
        return {
            "left": children.left[0].T @ left,
            "right": children.right[0].T @ right,
            "b": left[:, :n].sum(0),
            "b_f": left[:, n:].sum(0) + right[:, n:].sum(0),
        }


class Network(TreeNetwork):
    """harness.models.tree_lstm, chunk after chunk."""

    def loss(
        self,
        weights: Mapping[str, Array],
        vectors: Mapping[str, Array],
        ids: Mapping[str, Array],
        sizes: TreeSizes,
    ) -> tuple[Array, Array]:
        """Summed loss, and h of all rows."""
        gates = vectors["embedding"] @ weights["W"] + weights["b_leaf"]
        i, o, u = jnp.split(gates, 3, axis=1)
        c = jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        upper, lower = jnp.split(weights["U"], 2)
        inner = {
            "left": jnp.concatenate([upper, weights["F_1"]], axis=1),
            "right": jnp.concatenate([lower, weights["F_2"]], axis=1),
            "b": weights["b"],
            "b_f": weights["b_f"],
        }
        h, c = tree_states(Inner(self.h), sizes, inner, (h, c), ids)
        return picked(self.outputs(weights, h), ids["labels"]), h


NETWORKS = {"tree_lstm": Network}
