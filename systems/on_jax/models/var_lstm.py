"""Var-LSTM language model in JAX."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from systems.on_jax.parts.columns import ColumnSizes
from systems.on_jax.parts.losses import classified
from systems.on_jax.parts.lstm import lstms
from systems.on_jax.parts.sentence_network import SentenceNetwork


class Network(SentenceNetwork):
    """harness.models.var_lstm over columns of words."""

    both_ways = False

    def loss(
        self,
        weights: Mapping[str, Array],
        vectors: Mapping[str, Array],
        ids: Mapping[str, Array],
        sizes: ColumnSizes,
    ) -> tuple[Array, Array]:
        """Summed loss, and what the output layer reads (n_words, h)."""
        x = vectors["embedding"]
        for suffix in self.layers:
            U = weights[f"U{suffix}"]
            gates = (x @ weights[f"W{suffix}"] + weights[f"b{suffix}"])[ids["places"]]
            zeros = jnp.zeros((sizes.widths[0], U.shape[0]), U.dtype)
            x = lstms(sizes.widths, [gates], [U], [(zeros, zeros)], ids)[0][ids["rows"]]
        return classified(x, weights["W_out"], weights["b_out"], ids["labels"]), x

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Logits of all words."""
        return hidden @ weights["W_out"] + weights["b_out"]


NETWORKS = {"var_lstm": Network}
