"""Var-LSTM: a language model over sentences of any length; Fixed-LSTM if lengths are equal.

Source: Xu et al., "Cavs", ATC 2018, section 5 and apps/paper/seq-lstm-cavs*; the network of
Zaremba, Sutskever and Vinyals, 2014, without dropout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.models.parts.chains import (
    NONE,
    VertexBlock,
    build_pull,
    concatenate_chains,
    join_blocks,
)
from dynbatch.harness.models.parts.lstm import (
    compute_first_step,
    format_layer_suffix,
    from_input,
    specify_lstm_parameters,
    step,
    validate_layers,
)
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import VertexTracer, pick_neg_log_softmax


class VarLSTM(Model):
    """LSTM from a state of zeros, with the next word's distribution after every word.

    Args:
        layers: number of stacked LSTMs; vertices of layer k > 1 read the layer below.
    """

    name = "var_lstm"
    instance_kind = "chain"
    labels = "words"
    vertex_types: tuple[str, ...] = ("first", "step")

    def __init__(self, sizes: ModelSizes, layers: int = 1, **options: Any) -> None:
        super().__init__(sizes, layers=layers, **options)
        self.layers = validate_layers(layers)
        for k in range(2, layers + 1):
            self.vertex_types += (f"first_{k}", f"step_{k}")
            setattr(self, f"first_{k}", partial(self._compute_upper_first, k))
            setattr(self, f"step_{k}", partial(self._compute_upper_step, k))

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "c": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e, n_words = (
            self.sizes.hidden_size,
            self.sizes.embedding_size,
            self.sizes.get_size("words"),
        )
        cells: dict[str, ParameterSpec] = {}
        for k in range(1, self.layers + 1):
            cells |= specify_lstm_parameters(format_layer_suffix(k), e if k == 1 else h, h)
        return {
            "embedding": ParameterSpec((n_words, e), 0.1),
            **cells,
            "W_out": ParameterSpec((h, n_words), h**-0.5),
            "b_out": ParameterSpec((n_words,), 0.1),
        }

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        """Build all layers of each word in turn; the top layer's vertices are the outputs."""
        along = concatenate_chains([chain.n_words for chain in instances])
        n_layers = self.layers
        types = np.arange(1, 2 * n_layers, 2, dtype=np.int32) + np.ones((along.n, 1), np.int32)
        types[along.starts] -= 1
        vertices = np.arange(along.n * n_layers, dtype=np.int32).reshape(along.n, n_layers)
        before = vertices - n_layers
        before[along.starts] = NONE
        below = vertices - 1
        below[:, 0] = NONE
        args = np.stack([before, below], axis=-1).reshape(-1, 2)
        names = ("unbatchable", *self.vertex_types)
        n = len(args)
        words = np.concatenate([chain.words for chain in instances])
        labels = np.concatenate([chain.labels for chain in instances])
        return MiniBatch(
            graph=join_blocks([VertexBlock(0, types.reshape(-1), args)], names),
            pulls={
                "word": build_pull(n, (vertices[:, 0], words)),
                "label": build_pull(n, (vertices[:, -1], labels)),
            },
            outputs=vertices[:, -1].copy(),
            n_instances=len(instances),
        )

    def first(self, v: VertexTracer) -> None:
        """Compute the first step of a sentence, from a state of zeros."""
        compute_first_step(v, from_input(v, "", v.lookup("embedding", v.pull("word"))))

    def step(self, v: VertexTracer) -> None:
        """Compute a later step."""
        step(v, "", from_input(v, "", v.lookup("embedding", v.pull("word"))))

    def _compute_upper_first(self, k: int, v: VertexTracer) -> None:
        compute_first_step(v, from_input(v, format_layer_suffix(k), v.gather(0).h))

    def _compute_upper_step(self, k: int, v: VertexTracer) -> None:
        step(v, format_layer_suffix(k), from_input(v, format_layer_suffix(k), v.gather(1).h))

    def output(self, v: VertexTracer) -> None:
        """Compute the next word's distribution and its negative log likelihood."""
        logits = v.gather(0).h @ v.parameter("W_out") + v.parameter("b_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
