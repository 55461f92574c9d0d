"""MV-RNN in JAX: the cell of inner vertices, with a derivative by JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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
)
from dynbatch.systems.on_jax.scan import Given


class MVInner(NamedTuple):
    """Inner vertex; states are v (n, h) and T (n, h h), weights as in harness/models/mv_rnn.py."""

    h: int

    def forward(self, weights: Weights, children: ChildStates) -> tuple[States, States]:
        """Return states v and T, and no further values."""
        (v_1, T_1), (v_2, T_2) = children
        crossed = jnp.concatenate([self.multiply(v_2, T_1), self.multiply(v_1, T_2)], axis=1)
        v = jnp.tanh(crossed @ weights["W"] + weights["b"])
        # With three dimensions, XLA computes the gradients of A_1 and A_2 more slowly.
        left, right = T_1.reshape(-1, self.h), T_2.reshape(-1, self.h)
        T = left @ weights["A_1"] + right @ weights["A_2"] + weights["b_T"]
        return (v, T.reshape(T_1.shape)), ()

    def multiply(self, v: Array, T: Array) -> Array:
        """Return the product of each row of v (n, h) and its matrix of T (n, h h)."""
        return jnp.einsum("ni,nij->nj", v, T.reshape(-1, self.h, self.h))

    def backward(
        self, weights: Weights, kept: States, own: States, children: ChildStates, d: States
    ) -> Gradients:
        """Return gradients of all weights: matrices of all rows would leave the cache."""

        def compute_states(weights: Any, children: Any) -> Any:
            return self.forward(weights, children)[0]

        dweights, dchildren = jax.vjp(compute_states, weights, children)[1](d)
        return Gradients(dchildren, (), dweights)

    def gradients(self, children: ChildStates, kept: States, d: States) -> dict[str, Array]:
        """Return no gradients, because `backward` computes them."""
        return {}


class MVRNN(TreeNetwork):
    """Equations of dynbatch.harness.models.mv_rnn, chunk by chunk."""

    tables: Mapping[str, str] = {"embedding": "words", "matrices": "words"}
    chunk = 16

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and v of all rows."""
        weights, vectors, ids, sizes, _ = given
        inner = {name: weights[name] for name in ("W", "b", "A_1", "A_2", "b_T")}
        leaves = vectors["embedding"], vectors["matrices"]
        v, _ = compute_tree_states(MVInner(self.h), sizes, inner, leaves, ids)
        return compute_cross_entropy(self.outputs(weights, v), ids["labels"]), v


NETWORKS = {
    "mv_rnn": MVRNN,
}
