"""Tree-FC in JAX, in both variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from harness.contracts.model import Model
from systems.on_jax.parts.tree_network import TreeNetwork
from systems.on_jax.parts.tree_rows import TreeSizes
from systems.on_jax.parts.trees import Children, States, Weights, tree_states


class Inner(NamedTuple):
    """An inner vertex; weights are W (2 h, h) and b (h,)."""

    def forward(self, weights: Weights, children: Children) -> tuple[States, States]:
        """State h; nothing else is kept."""
        return (jax.nn.relu(_both(children) @ weights["W"] + weights["b"]),), ()

    def backward(
        self, weights: Weights, kept: States, own: States, children: Children, d: States
    ) -> tuple[Children, States]:
        """Gradient of what relu reads."""
        given = jnp.where(own[0] > 0, d[0], 0)
        left, right = jnp.split(given @ weights["W"].T, 2, axis=1)
        return Children((left,), (right,)), (given,)

    def gradients(self, children: Children, kept: States, d: States) -> dict[str, Array]:
        """One product for all rows."""
        return {"W": _both(children).T @ d[0], "b": d[0].sum(0)}


def _both(children: Children) -> Array:
    return jnp.concatenate([children.left[0], children.right[0]], axis=1)


class Network(TreeNetwork):
    """harness.models.tree_fc, chunk after chunk."""

    reads = "roots"

    def __init__(self, model: Model, options: Any) -> None:
        super().__init__(model, options)
        self.looks_up = model.options["variant"] == "fold"
        if not self.looks_up:
            self.tables = {}

    def loss(
        self,
        weights: Mapping[str, Array],
        vectors: Mapping[str, Array],
        ids: Mapping[str, Array],
        sizes: TreeSizes,
    ) -> tuple[Array, Array]:
        """Summed loss, and h of the roots."""
        layer = {name: weights[name] for name in ("W", "b")}
        if self.looks_up:
            leaves = vectors["embedding"]
        else:  # the layer of two vectors of zeros, as every vertex computes it for itself
            zeros = jnp.zeros((sizes.n_leaves, 2 * self.h), layer["W"].dtype)
            leaves = jax.nn.relu(zeros @ layer["W"] + layer["b"])
        (h,) = tree_states(Inner(), sizes, layer, (leaves,), ids)
        roots = h[ids["roots"]]
        real = (ids["roots"] >= 0)[:, None]
        return 0.5 * jnp.sum(jnp.where(real, roots * roots, 0)), roots

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """The roots' h."""
        return hidden


NETWORKS = {"tree_fc": Network}
