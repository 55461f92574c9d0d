"""BiLSTM tagger: LSTMs in both directions along the sentence, and a tag for every word.

Each direction has its own stack of layers. With layers=2 and learned initial states it is the model
of ED-Batch's release.

Source: Neubig, Goldberg and Dyer, NIPS 2017, section 4 (dynet-benchmark's bilstm-tagger); Chen et
al., "ED-Batch", ICML 2023, benchmark/models/bilstm.cc of the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.models.parts.chains import (
    append_arguments,
    build_block,
    build_pull,
    build_started_recurrence,
    concatenate_chains,
    join_blocks,
)
from dynbatch.harness.models.parts.lstm import (
    classify,
    compute_tag,
    format_layer_suffix,
    from_input,
    specify_lstm_parameters,
    specify_start_parameters,
    specify_tagger_parameters,
    start,
    step,
    validate_layers,
)
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import VertexTracer

DIRECTIONS = ("forward", "backward")


class BiLSTM(Model):
    """Stacks of LSTMs in both directions with learned initial states, and a tagger over both."""

    name = "bilstm"
    instance_kind = "chain"
    vertex_types: tuple[str, ...] = (
        *("forward_start", "forward"),
        *("backward_start", "backward"),
        "tag",
    )  # plus one pair per further layer

    def __init__(
        self, sizes: ModelSizes, layers: int = 1, mlp_size: int = 0, **options: Any
    ) -> None:
        super().__init__(sizes, layers=layers, mlp_size=mlp_size, **options)
        self.layers, self.mlp_size = validate_layers(layers), mlp_size or sizes.hidden_size
        self.stacks = [
            (d, format_layer_suffix(k)) for d in DIRECTIONS for k in range(1, layers + 1)
        ]
        self.vertex_types = (
            *(f"{d}{k}{what}" for d, k in self.stacks for what in ("_start", "")),
            "tag",
        )
        for d, k in self.stacks:
            if k:
                setattr(self, f"{d}{k}_start", partial(self._start, f"_{d}{k}"))
                setattr(self, f"{d}{k}", partial(self._compute_upper_step, f"_{d}{k}"))

    @property
    def state(self) -> Mapping[str, int]:
        h = self.sizes.hidden_size
        return {"h": h, "c": h, "t": self.mlp_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e, t = self.sizes.hidden_size, self.sizes.embedding_size, self.mlp_size
        cells: dict[str, ParameterSpec] = {}
        for d, k in self.stacks:
            cells |= specify_start_parameters(f"_{d}{k}", h)
            cells |= specify_lstm_parameters(f"_{d}{k}", h if k else e, h)
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            **cells,
            **specify_tagger_parameters(h, t, self.sizes.get_size("classes")),
        }

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        """Build both directions, layer by layer, and a tag vertex for every word as output."""
        along = concatenate_chains([chain.n_words for chain in instances])
        words = np.concatenate([chain.words for chain in instances])
        labels = np.concatenate([chain.labels for chain in instances])
        mirror, blocks, reads, base = along.mirror_positions(), [], [], 0
        tops: list[IntArray] = []
        for first_type, (d, k) in zip(
            range(1, len(self.vertex_types), 2), self.stacks, strict=True
        ):
            block, at = build_started_recurrence(base, along, first_type, first_type + 1)
            at = at if d == "forward" else at[mirror]  # by position in the sentence
            if k:
                block = append_arguments(block, at, tops.pop())
            else:
                reads.append((at, words))
            tops.append(at)
            blocks.append(block)
            base = block.end
        tag = build_block(base, len(self.vertex_types), np.stack(tops, axis=1))
        n = tag.end
        return MiniBatch(
            graph=join_blocks([*blocks, tag], ("unbatchable", *self.vertex_types)),
            pulls={"word": build_pull(n, *reads), "label": build_pull(n, (tag.vertices, labels))},
            outputs=tag.vertices,
            n_instances=len(instances),
        )

    def forward_start(self, v: VertexTracer) -> None:
        """Compute the learned initial state of the forward direction."""
        self._start("_forward", v)

    def forward(self, v: VertexTracer) -> None:
        """Compute a step of the forward direction."""
        self._compute_bottom_step("_forward", v)

    def backward_start(self, v: VertexTracer) -> None:
        """Compute the learned initial state of the backward direction."""
        self._start("_backward", v)

    def backward(self, v: VertexTracer) -> None:
        """Compute a step of the backward direction."""
        self._compute_bottom_step("_backward", v)

    def _start(self, suffix: str, v: VertexTracer) -> None:
        start(v, suffix, self.sizes.hidden_size)

    def _compute_bottom_step(self, suffix: str, v: VertexTracer) -> None:
        step(v, suffix, from_input(v, suffix, v.lookup("embedding", v.pull("word"))))

    def _compute_upper_step(self, suffix: str, v: VertexTracer) -> None:
        step(v, suffix, from_input(v, suffix, v.gather(1).h))

    def tag(self, v: VertexTracer) -> None:
        """Compute t = tanh(W_tag [h_forward; h_backward] + b_tag)."""
        compute_tag(v)

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the tags and the negative log likelihood of the correct one."""
        classify(v)
