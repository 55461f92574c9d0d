"""BiLSTM tagger in JAX."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from harness.models.bilstm import DIRECTIONS
from systems.on_jax.parts.columns import ColumnSizes
from systems.on_jax.parts.losses import picked
from systems.on_jax.parts.lstm import lstms
from systems.on_jax.parts.sentence_network import SentenceNetwork

ORDERS = (("places", "rows"), ("mirrored", "mirrored_rows"))  # along and against the sentence


class Network(SentenceNetwork):
    """harness.models.bilstm over columns of words, both directions in one loop."""

    both_ways = True

    def loss(
        self,
        weights: Mapping[str, Array],
        vectors: Mapping[str, Array],
        ids: Mapping[str, Array],
        sizes: ColumnSizes,
    ) -> tuple[Array, Array]:
        """Summed loss, and what the classifier reads (n_words, mlp_size)."""
        x = [vectors["embedding"]] * 2
        for layer in self.layers:
            names = [f"_{direction}{layer}" for direction in DIRECTIONS]
            gates = [
                (read @ weights[f"W{name}"] + weights[f"b{name}"])[ids[places]]
                for read, name, (places, _) in zip(x, names, ORDERS, strict=True)
            ]
            U = [weights[f"U{name}"] for name in names]
            starts = [
                tuple(
                    jnp.broadcast_to(weights[f"{state}{name}"], (sizes.widths[0], len(U[0])))
                    for state in ("h_0", "c_0")
                )
                for name in names
            ]
            found = lstms(sizes.widths, gates, U, starts, ids)
            x = [h[ids[rows]] for h, (_, rows) in zip(found, ORDERS, strict=True)]
        t = jnp.tanh(jnp.concatenate(x, axis=1) @ weights["W_tag"] + weights["b_tag"])
        return picked(self.outputs(weights, t), ids["labels"]), t

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Scores of the tags of all words."""
        return hidden @ weights["W_out"]


NETWORKS = {"bilstm": Network}
