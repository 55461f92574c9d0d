"""Var-LSTM language model in JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from harness.contracts.model import Model
from harness.models.parts.lstm import layer_suffix
from harness.values.instances import Chain
from systems.on_jax.parts.columns import ColumnSizes, columns_of
from systems.on_jax.parts.losses import classified
from systems.on_jax.parts.lstm import lstms
from systems.on_jax.parts.plan import Plan


class Network:
    """harness.models.var_lstm over columns of words."""

    tables: Mapping[str, str] = {"embedding": "words"}

    def __init__(self, model: Model, options: Any) -> None:
        self.suffixes = [layer_suffix(k) for k in range(1, model.options["layers"] + 1)]
        self.options = options

    def plan(self, chains: Sequence[Chain]) -> Plan:
        """Columns of the sentences, and words and labels by place."""
        return columns_of(chains, self.options.widths, self.options.multiple, both_ways=False)

    def loss(
        self,
        weights: Mapping[str, Array],
        vectors: Mapping[str, Array],
        ids: Mapping[str, Array],
        sizes: ColumnSizes,
    ) -> tuple[Array, Array]:
        """Summed loss, and what the output layer reads (n_words, h)."""
        x = vectors["embedding"]
        for suffix in self.suffixes:
            U = weights[f"U{suffix}"]
            gates = (x @ weights[f"W{suffix}"] + weights[f"b{suffix}"])[ids["places"]]
            zeros = jnp.zeros((sizes.widths[0], U.shape[0]), U.dtype)
            x = lstms(sizes.widths, [gates], [U], [(zeros, zeros)], ids)[0][ids["rows"]]
        return classified(x, weights["W_out"], weights["b_out"], ids["labels"]), x

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Logits of all words."""
        return hidden @ weights["W_out"] + weights["b_out"]
