"""Binary Tree-GRU in JAX."""

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
    """An inner vertex: the mean of a step on each child; weights as in harness.models.tree_gru."""

    def forward(self, weights: Weights, children: Children) -> tuple[States, States]:
        """State h, and r, z and the candidate of both steps."""
        first, of_first = step(children.left[0], *_of(weights, 1))
        second, of_second = step(children.right[0], *_of(weights, 2))
        return (0.5 * (first + second),), (*of_first, *of_second)

    def backward(
        self, weights: Weights, kept: States, own: States, children: Children, d: States
    ) -> tuple[Children, States]:
        """Gradients of r and z side by side, and of the candidate, before their non-linearities."""
        half = 0.5 * d[0]
        left, of_left = step_back(half, children.left[0], kept[:3], *_of(weights, 1)[:2])
        right, of_right = step_back(half, children.right[0], kept[3:], *_of(weights, 2)[:2])
        return Children((left,), (right,)), (*of_left, *of_right)

    def gradients(self, children: Children, kept: States, d: States) -> dict[str, Array]:
        """One product for each matrix."""
        (h_1,), (h_2,) = children
        gates_1, c_1, gates_2, c_2 = d
        return {
            "U_1": h_1.T @ gates_1,
            "U_2": h_2.T @ gates_2,
            "b": gates_1.sum(0) + gates_2.sum(0),
            "U_c1": (kept[0] * h_1).T @ c_1,
            "U_c2": (kept[3] * h_2).T @ c_2,
            "b_c": c_1.sum(0) + c_2.sum(0),
        }


def _of(weights: Weights, child: int) -> tuple[Array, Array, Array, Array]:
    return weights[f"U_{child}"], weights[f"U_c{child}"], weights["b"], weights["b_c"]


def step(x: Array, U: Array, U_c: Array, b: Array, b_c: Array) -> tuple[Array, States]:
    """A GRU step on x (n, h), and r, z and the candidate."""
    r, z = jnp.split(jax.nn.sigmoid(x @ U + b), 2, axis=1)
    c = jnp.tanh((r * x) @ U_c + b_c)
    return z * x + (1 - z) * c, (r, z, c)


def step_back(d: Array, x: Array, kept: States, U: Array, U_c: Array) -> tuple[Array, States]:
    """Gradients of x, of r and z side by side, and of the candidate, from that of the step."""
    r, z, c = kept
    dc = d * (1 - z) * (1 - c * c)
    dproduct = dc @ U_c.T
    gates = jnp.concatenate([dproduct * x * r * (1 - r), d * (x - c) * z * (1 - z)], axis=1)
    return d * z + dproduct * r + gates @ U.T, (gates, dc)


class Network(TreeNetwork):
    """harness.models.tree_gru, chunk after chunk."""

    def loss(
        self,
        weights: Mapping[str, Array],
        vectors: Mapping[str, Array],
        ids: Mapping[str, Array],
        sizes: TreeSizes,
    ) -> tuple[Array, Array]:
        """Summed loss, and h of all rows."""
        of_leaves = (weights[name] for name in ("W", "W_c", "b_leaf", "b_leaf_c"))
        leaves, _ = step(vectors["embedding"], *of_leaves)
        inner = {name: weights[name] for name in ("U_1", "U_2", "b", "U_c1", "U_c2", "b_c")}
        (h,) = tree_states(Inner(), sizes, inner, (leaves,), ids)
        return picked(self.outputs(weights, h), ids["labels"]), h


NETWORKS = {"tree_gru": Network}
