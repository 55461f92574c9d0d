"""LSTM encoder-decoder for translation, with teacher forcing and a stepwise decoder.

The cell reads tanh(E x + b_E). The release calls its decoder step by step, as if the next word
depended on the previous distribution; so does this one (Graph.segments).

Source: Chen et al., "ED-Batch", ICML 2023, workload LSTM-NMT; benchmark/models/nmt.cc of its
release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dynbatch.harness.contracts.model import Model, ParameterSpec
from dynbatch.harness.models.parts.chains import (
    Chains,
    VertexBlock,
    build_pull,
    build_started_recurrence,
    concatenate_chains,
    join_blocks,
)
from dynbatch.harness.models.parts.lstm import (
    from_input,
    specify_lstm_parameters,
    specify_start_parameters,
    start,
    step,
)
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import SentencePair
from dynbatch.harness.vertex import Symbol, VertexTracer, pick_neg_log_softmax, tanh


class Seq2Seq(Model):
    """Encoder-decoder whose decoder starts from the encoder's last state.

    The outputs are the distributions of the next word at each step of the decoder.
    """

    name = "seq2seq"
    instance_kind = "sentence_pair"
    vertex_types = ("start", "encode", "decode")
    waits: ClassVar[bool] = True  # each step waits for the words of the previous one

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "c": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        parameters = {**specify_start_parameters("", h)}
        for side in ("source", "target"):
            parameters |= {
                f"{side}_embedding": ParameterSpec((self.sizes.get_size(f"{side}_words"), e), 0.1),
                f"E_{side}": ParameterSpec((e, h), e**-0.5),
                f"b_E_{side}": ParameterSpec((h,), 0.1),
                **specify_lstm_parameters(f"_{side}", h, h),
            }
        n_words = self.sizes.get_size("target_words")
        return {**parameters, "W_out": ParameterSpec((h, n_words), h**-0.5)}

    def mini_batch(self, instances: Sequence[SentencePair]) -> MiniBatch:
        """Build all encoders, then all decoders.

        Graph segment k contains step k of every decoder; segment 0 also contains the encoders.
        """
        source = concatenate_chains([len(pair.source) for pair in instances])
        target = concatenate_chains([pair.n_steps for pair in instances])
        encoder, at = build_started_recurrence(0, source, 1, 2)
        decoder = np.arange(encoder.end - 1, encoder.end - 1 + target.n, dtype=np.int32)
        decoder[target.starts] = at[source.ends - 1]
        steps = VertexBlock(encoder.end, np.full(target.n, 3, dtype=np.int32), decoder[:, None])
        n = steps.end
        words = np.concatenate([pair.source for pair in instances])
        read = np.concatenate([pair.target[:-1] for pair in instances])
        labels = np.concatenate([pair.target[1:] for pair in instances])
        segments = self._assign_segments(encoder.end, target)
        return MiniBatch(
            graph=join_blocks([encoder, steps], ("unbatchable", *self.vertex_types), segments),
            pulls={
                "source": build_pull(n, (at, words)),
                "target": build_pull(n, (steps.vertices, read)),
                "label": build_pull(n, (steps.vertices, labels)),
            },
            outputs=steps.vertices,
            n_instances=len(instances),
        )

    def _assign_segments(self, n_encoders: int, target: Chains) -> IntArray | None:
        """Return each vertex's graph segment, encoders first; None if nothing waits."""
        if not self.waits:
            return None
        segments = np.zeros(n_encoders + target.n, dtype=np.int32)
        segments[n_encoders:] = target.index_positions()
        return segments

    def start(self, v: VertexTracer) -> None:
        """Compute the learned state before the first word."""
        start(v, "", self.sizes.hidden_size)

    def encode(self, v: VertexTracer) -> None:
        """Read a word of the source."""
        self._step(v, "source")

    def decode(self, v: VertexTracer) -> None:
        """Read a word of the target: the previous prediction, or the given word."""
        self._step(v, "target")

    def _step(self, v: VertexTracer, side: str) -> None:
        step(v, f"_{side}", from_input(v, f"_{side}", self._read(v, side)))

    def _read(self, v: VertexTracer, side: str) -> Symbol:
        x = v.lookup(f"{side}_embedding", v.pull(side))
        return tanh(x @ v.parameter(f"E_{side}") + v.parameter(f"b_E_{side}"))

    def output(self, v: VertexTracer) -> None:
        """Compute the next word's distribution and its negative log likelihood."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
