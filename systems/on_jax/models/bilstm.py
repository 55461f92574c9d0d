"""BiLSTM tagger in JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from harness.contracts.model import Model
from harness.models.bilstm import DIRECTIONS
from harness.models.parts.lstm import layer_suffix
from harness.values.instances import Chain
from systems.on_jax.parts.columns import ColumnSizes, columns_of
from systems.on_jax.parts.losses import picked
from systems.on_jax.parts.lstm import lstms
from systems.on_jax.parts.plan import Plan

ORDERS = (("places", "rows"), ("mirrored", "mirrored_rows"))  # along and against the sentence


class Network:
    """harness.models.bilstm over columns of words, both directions in one loop."""

    tables: Mapping[str, str] = {"embedding": "words"}

    def __init__(self, model: Model, options: Any) -> None:
        self.layers = [layer_suffix(k) for k in range(1, model.options["layers"] + 1)]
        self.options = options

    def plan(self, chains: Sequence[Chain]) -> Plan:
        """Columns of the sentences, and words and labels by place."""
        return columns_of(chains, self.options.widths, self.options.multiple, both_ways=True)

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
