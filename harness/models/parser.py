"""Transition-based dependency parser over BiLSTM features; a mini-batch runs many in parallel.

Each decision is evaluated before the next one is recorded (Graph.segments). The parser follows the
transitions of the given tree.

Source: Kiperwasser and Goldberg, TACL 2016 (arc-hybrid; their options userlmost, userl and
bibi-lstm), as in Neubig, Goldberg and Dyer, NIPS 2017, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.parts.chains import (
    VertexBlock,
    append_arguments,
    build_block,
    build_pull,
    build_recurrence,
    concatenate_chains,
    join_blocks,
)
from dynbatch.harness.models.parts.lstm import (
    compute_first_step,
    from_input,
    specify_lstm_parameters,
    step,
)
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.checked import check_count
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.parsed import N_FEATURES, RIGHT, SHIFT, ParsedSentence
from dynbatch.harness.vertex import Symbol, VertexTracer, pick_neg_log_softmax, tanh

LAYERS = ("", "_2")


class Parser(Model):
    """Two BiLSTM layers over words and tags, then two transitions per word, scored by an MLP.

    The scores are those of SHIFT, of a LEFT for every relation, and of a RIGHT for every relation.

    Args:
        sizes: its hidden_size is that of both directions together.
        tag_size: width of a part of speech's vector.
        mlp_size: width of the layer below the transitions' scores.

    Raises:
        ConfigError: for an odd hidden_size.
    """

    name = "parser"
    instance_kind = "parsed_sentence"
    vertex_types = (
        *("forward_first", "forward", "backward_first", "backward", "token"),
        *("forward_2_first", "forward_2", "backward_2_first", "backward_2"),
        *("vector", "missing", "transition"),
    )

    def __init__(
        self, sizes: ModelSizes, tag_size: int = 25, mlp_size: int = 100, **options: Any
    ) -> None:
        super().__init__(sizes, tag_size=tag_size, mlp_size=mlp_size, **options)
        check_count("model.options.tag_size", tag_size, 1)
        check_count("model.options.mlp_size", mlp_size, 1)
        if sizes.hidden_size % 2:
            raise ConfigError(f"the parser needs an even hidden_size, got {sizes.hidden_size}")
        self.half, self.tag_size, self.mlp_size = sizes.hidden_size // 2, tag_size, mlp_size

    @property
    def state(self) -> Mapping[str, int]:
        half = self.half
        return {
            **{"h": half, "c": half, "a_forward": 4 * half, "a_backward": 4 * half},
            **{"x": 2 * half, "t": self.mlp_size},
        }

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        cells: dict[str, ParameterSpec] = {}
        for layer, n_inputs in zip(LAYERS, (e + self.tag_size, h), strict=True):
            for direction in ("forward", "backward"):
                cells |= specify_lstm_parameters(f"_{direction}{layer}", n_inputs, self.half)
        seen, n_scores = N_FEATURES * h, 1 + 2 * self.sizes.get_size("relations")
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            "tags": ParameterSpec((self.sizes.get_size("tags"), self.tag_size), 0.1),
            **cells,
            "missing": ParameterSpec((h,), 0.1),
            "W_mlp": ParameterSpec((seen, self.mlp_size), seen**-0.5),  # rows: stack, buffer
            "b_mlp": ParameterSpec((self.mlp_size,), 0.1),
            "W_out": ParameterSpec((self.mlp_size, n_scores), self.mlp_size**-0.5),
            "b_out": ParameterSpec((n_scores,), 0.1),
        }

    def mini_batch(self, instances: Sequence[ParsedSentence]) -> MiniBatch:
        """Build both BiLSTM layers, vectors of tokens, one of missing tokens, and transitions.

        Graph segment k contains transition k of every instance; segment 0 also contains the rest.
        """
        tokens = concatenate_chains([sentence.n_tokens for sentence in instances])
        steps = concatenate_chains([sentence.n_transitions for sentence in instances])
        mirror, k = (
            tokens.mirror_positions(),
            {t: i for i, t in enumerate(self.vertex_types, start=1)},
        )
        forward = build_recurrence(0, tokens, k["forward_first"], k["forward"])
        backward = build_recurrence(forward.end, tokens, k["backward_first"], k["backward"])
        both = np.stack([forward.vertices, backward.vertices[mirror]], axis=1)
        token = build_block(backward.end, k["token"], both)
        forward_2 = build_recurrence(token.end, tokens, k["forward_2_first"], k["forward_2"])
        forward_2 = append_arguments(forward_2, forward_2.vertices, token.vertices)
        backward_2 = build_recurrence(forward_2.end, tokens, k["backward_2_first"], k["backward_2"])
        backward_2 = append_arguments(backward_2, backward_2.vertices[mirror], token.vertices)
        both = np.stack([forward_2.vertices, backward_2.vertices[mirror]], axis=1)
        vector = build_block(backward_2.end, k["vector"], both)
        missing = build_block(vector.end, k["missing"], np.zeros((1, 0), dtype=np.int32))
        looked_at = np.concatenate([sentence.features for sentence in instances])
        absent = looked_at < 0
        looked_at += (vector.base + tokens.starts).repeat(steps.lengths)[:, None]
        looked_at[absent] = missing.base
        transition = build_block(missing.end, k["transition"], looked_at)
        in_order = np.arange(tokens.n, dtype=np.int32)
        read = [(forward.vertices, in_order), (backward.vertices, mirror)]
        segments = np.zeros(transition.end, dtype=np.int32)
        segments[transition.base :] = steps.index_positions()
        words = np.concatenate([sentence.words for sentence in instances])
        tags = np.concatenate([sentence.tags for sentence in instances])
        blocks = (forward, backward, token, forward_2, backward_2, vector, missing, transition)
        return MiniBatch(
            graph=join_blocks(blocks, ("unbatchable", *self.vertex_types), segments),
            pulls={
                "word": build_pull(transition.end, *((at, words[order]) for at, order in read)),
                "tag": build_pull(transition.end, *((at, tags[order]) for at, order in read)),
                "label": self._build_labels(transition, instances),
            },
            outputs=transition.vertices,
            n_instances=len(instances),
        )

    def _build_labels(
        self, transition: VertexBlock, instances: Sequence[ParsedSentence]
    ) -> IntArray:
        kinds = np.concatenate([sentence.kinds for sentence in instances])
        arcs = np.concatenate([sentence.arcs for sentence in instances])
        labels = self.index_scores(kinds, arcs)
        return build_pull(transition.end, (transition.vertices, labels))

    def index_scores(self, kinds: IntArray, arcs: IntArray) -> IntArray:
        """Return the index of each transition's score, from its kind and its relation."""
        behind_left = np.where(kinds == RIGHT, self.sizes.get_size("relations"), 0)
        scores: IntArray = np.where(kinds == SHIFT, 0, 1 + behind_left + arcs).astype(np.int32)
        return scores

    def forward_first(self, v: VertexTracer) -> None:
        """Compute the first layer's first step forward, from a state of zeros."""
        compute_first_step(v, from_input(v, "_forward", self._read(v)))

    def forward(self, v: VertexTracer) -> None:
        """Compute a later step of the first layer's forward direction."""
        step(v, "_forward", from_input(v, "_forward", self._read(v)))

    def backward_first(self, v: VertexTracer) -> None:
        """Compute the first layer's first step backward, at the root, from a state of zeros."""
        compute_first_step(v, from_input(v, "_backward", self._read(v)))

    def backward(self, v: VertexTracer) -> None:
        """Compute a later step of the first layer's backward direction."""
        step(v, "_backward", from_input(v, "_backward", self._read(v)))

    def _read(self, v: VertexTracer) -> Symbol:
        word = v.lookup("embedding", v.pull("word"))
        return v.concat(word, v.lookup("tags", v.pull("tag")))

    def token(self, v: VertexTracer) -> None:
        """Compute the gate inputs of the second layer from the first layer's states of a token."""
        x = v.concat(v.gather(0).h, v.gather(1).h)
        v.scatter(
            a_forward=from_input(v, "_forward_2", x), a_backward=from_input(v, "_backward_2", x)
        )

    def forward_2_first(self, v: VertexTracer) -> None:
        """Compute the second layer's first step forward, from a state of zeros."""
        compute_first_step(v, v.gather(0).a_forward)

    def forward_2(self, v: VertexTracer) -> None:
        """Compute a later step of the second layer's forward direction."""
        step(v, "_forward_2", v.gather(1).a_forward)

    def backward_2_first(self, v: VertexTracer) -> None:
        """Compute the second layer's first step backward, from a state of zeros."""
        compute_first_step(v, v.gather(0).a_backward)

    def backward_2(self, v: VertexTracer) -> None:
        """Compute a later step of the second layer's backward direction."""
        step(v, "_backward_2", v.gather(1).a_backward)

    def vector(self, v: VertexTracer) -> None:
        """Concatenate both directions of the second layer."""
        v.scatter(x=v.concat(v.gather(0).h, v.gather(1).h))

    def missing(self, v: VertexTracer) -> None:
        """Compute the learned vector that replaces missing tokens."""
        v.scatter(x=tanh(v.zeros(2 * self.half) + v.parameter("missing")))

    def transition(self, v: VertexTracer) -> None:
        """Compute t = tanh(W_mlp [x of the feature tokens] + b_mlp)."""
        seen = v.concat(*(v.gather(slot).x for slot in range(N_FEATURES)))
        v.scatter(t=tanh(seen @ v.parameter("W_mlp") + v.parameter("b_mlp")))

    def output(self, v: VertexTracer) -> None:
        """Compute the transitions' scores and the negative log likelihood of the correct one."""
        logits = v.gather(0).t @ v.parameter("W_out") + v.parameter("b_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
