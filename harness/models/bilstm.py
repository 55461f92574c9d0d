"""BiLSTM tagger: one LSTM along the sentence, one against it, a tag at every word.

Neubig, Goldberg and Dyer, NIPS 2017, section 4 (dynet-benchmark's bilstm-tagger); with layers=2
and learned first states as in ED-Batch's release, benchmark/models/bilstm.cc (Chen et al., ICML
2023). Each direction has its own stack of layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from harness.contracts.model import Model, ModelSizes, ParameterSpec
from harness.models.parts.chains import chains, joined, plain, pulled, reading, started_recurrence
from harness.models.parts.lstm import (
    checked_layers,
    classify,
    from_input,
    layer_suffix,
    lstm_parameters,
    start,
    start_parameters,
    step,
    tag,
    tagger_parameters,
)
from harness.values.arrays import IntArray
from harness.values.graph import MiniBatch
from harness.values.instances import Chain
from harness.vertex import VertexTracer

DIRECTIONS = ("forward", "backward")


class BiLSTM(Model):
    """Stacks of LSTMs in both directions from learned states; tanh and a classifier on top.

    layers: of each direction. mlp_size: width of the layer under the classifier; 0: hidden_size.
    """

    name = "bilstm"
    instance_kind = "chain"
    vertex_types: tuple[str, ...] = (
        *("forward_start", "forward"),
        *("backward_start", "backward"),
        "tag",
    )  # more with their layers

    def __init__(
        self, sizes: ModelSizes, layers: int = 1, mlp_size: int = 0, **options: Any
    ) -> None:
        super().__init__(sizes, layers=layers, mlp_size=mlp_size, **options)
        self.layers, self.mlp_size = checked_layers(layers), mlp_size or sizes.hidden_size
        self.stacks = [(d, layer_suffix(k)) for d in DIRECTIONS for k in range(1, layers + 1)]
        self.vertex_types = (
            *(f"{d}{k}{what}" for d, k in self.stacks for what in ("_start", "")),
            "tag",
        )
        for d, k in self.stacks:
            if k:
                setattr(self, f"{d}{k}_start", partial(self._start, f"_{d}{k}"))
                setattr(self, f"{d}{k}", partial(self._upper, f"_{d}{k}"))

    @property
    def state(self) -> Mapping[str, int]:
        h = self.sizes.hidden_size
        return {"h": h, "c": h, "t": self.mlp_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e, t = self.sizes.hidden_size, self.sizes.embedding_size, self.mlp_size
        cells: dict[str, ParameterSpec] = {}
        for d, k in self.stacks:
            cells |= start_parameters(f"_{d}{k}", h)
            cells |= lstm_parameters(f"_{d}{k}", h if k else e, h)
        return {
            "embedding": ParameterSpec((self.sizes.of("words"), e), 0.1),
            **cells,
            **tagger_parameters(h, t, self.sizes.of("classes")),
        }

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        """Both directions, layer by layer, and a tag vertex for every word, which is read."""
        along = chains([chain.n_words for chain in instances])
        words = np.concatenate([chain.words for chain in instances])
        labels = np.concatenate([chain.labels for chain in instances])
        mirror, blocks, reads, base = along.mirrored(), [], [], 0
        tops: list[IntArray] = []
        for first_type, (d, k) in zip(
            range(1, len(self.vertex_types), 2), self.stacks, strict=True
        ):
            block, at = started_recurrence(base, along, first_type, first_type + 1)
            at = at if d == "forward" else at[mirror]  # by place in the sentence
            if k:
                block = reading(block, at, tops.pop())
            else:
                reads.append((at, words))
            tops.append(at)
            blocks.append(block)
            base = block.end
        tag = plain(base, len(self.vertex_types), np.stack(tops, axis=1))
        n = tag.end
        return MiniBatch(
            graph=joined([*blocks, tag], ("unbatchable", *self.vertex_types)),
            pulls={"word": pulled(n, *reads), "label": pulled(n, (tag.vertices, labels))},
            outputs=tag.vertices,
            n_instances=len(instances),
        )

    def forward_start(self, v: VertexTracer) -> None:
        """The learned state before the first word."""
        self._start("_forward", v)

    def forward(self, v: VertexTracer) -> None:
        """A step along the sentence."""
        self._bottom("_forward", v)

    def backward_start(self, v: VertexTracer) -> None:
        """The learned state behind the last word."""
        self._start("_backward", v)

    def backward(self, v: VertexTracer) -> None:
        """A step against the sentence."""
        self._bottom("_backward", v)

    def _start(self, suffix: str, v: VertexTracer) -> None:
        start(v, suffix, self.sizes.hidden_size)

    def _bottom(self, suffix: str, v: VertexTracer) -> None:
        step(v, suffix, from_input(v, suffix, v.lookup("embedding", v.pull("word"))))

    def _upper(self, suffix: str, v: VertexTracer) -> None:
        step(v, suffix, from_input(v, suffix, v.gather(1).h))

    def tag(self, v: VertexTracer) -> None:
        """t = tanh(W_tag [h_forward; h_backward] + b_tag)."""
        tag(v)

    def output(self, v: VertexTracer) -> None:
        """Classifier of tags and its negative log likelihood."""
        classify(v)
