"""BiLSTM tagger that computes the vectors of rare words from their letters.

It has one layer per direction, and a BiLSTM over letters that is half as wide as a word's vector.

Source: Neubig, Goldberg and Dyer, NIPS 2017, section 4 (dynet-benchmark's bilstm-tagger-withchar).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.parts.chains import (
    NONE,
    VertexBlock,
    append_arguments,
    build_block,
    build_pull,
    build_recurrence,
    build_started_recurrence,
    concatenate_chains,
    join_blocks,
)
from dynbatch.harness.models.parts.lstm import (
    classify,
    compute_first_step,
    compute_tag,
    from_input,
    specify_lstm_parameters,
    specify_start_parameters,
    specify_tagger_parameters,
    start,
    step,
)
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import Symbol, VertexTracer

LETTER_TYPES = ("spell_first", "spell", "spell_back_first", "spell_back")


class BiLSTMChar(Model):
    """BiLSTM tagger; the vectors of rare words are concatenated from two LSTMs over their letters.

    The part of the gates that depends on the word's vector x, W x + b, is computed at the word, for
    both directions and all words at the same time (states a_forward, a_backward).

    Args:
        character_size: width of a letter's vector; 0: a quarter of a word's.
        mlp_size: width of the layer below the classifier; 0: hidden_size.

    Raises:
        ConfigError: if embedding_size is odd.
    """

    name = "bilstm_char"
    instance_kind = "chain"
    vertex_types = (
        *LETTER_TYPES,
        *("word", "rare"),
        *("forward_start", "forward", "backward_start", "backward", "tag"),
    )

    def __init__(
        self, sizes: ModelSizes, character_size: int = 0, mlp_size: int = 0, **options: Any
    ) -> None:
        super().__init__(sizes, character_size=character_size, mlp_size=mlp_size, **options)
        if sizes.embedding_size % 2:
            raise ConfigError(
                f"bilstm_char needs an even embedding_size, got {sizes.embedding_size}"
            )
        self.half = sizes.embedding_size // 2
        self.character_size = character_size or max(1, sizes.embedding_size // 4)
        self.mlp_size = mlp_size or sizes.hidden_size

    @property
    def state(self) -> Mapping[str, int]:
        h = self.sizes.hidden_size
        return {
            **{"letter_h": self.half, "letter_c": self.half},
            **{"a_forward": 4 * h, "a_backward": 4 * h},
            **{"h": h, "c": h, "t": self.mlp_size},
        }

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e, t = self.sizes.hidden_size, self.sizes.embedding_size, self.mlp_size
        letters = ParameterSpec((self.sizes.get_size("characters"), self.character_size), 0.1)
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            "characters": letters,
            **specify_lstm_parameters("_spell", self.character_size, self.half),
            **specify_lstm_parameters("_spell_back", self.character_size, self.half),
            **specify_start_parameters("_forward", h),
            **specify_lstm_parameters("_forward", e, h),
            **specify_start_parameters("_backward", h),
            **specify_lstm_parameters("_backward", e, h),
            **specify_tagger_parameters(h, t, self.sizes.get_size("classes")),
        }

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        """Build the letters of rare words, all words, both directions, and tags as outputs."""
        along = concatenate_chains([chain.n_words for chain in instances])
        n_letters = np.concatenate([np.diff(chain.char_start) for chain in instances])
        rare = np.flatnonzero(n_letters > 0)
        spelling = concatenate_chains(n_letters[rare])
        letters = np.concatenate([chain.characters for chain in instances])
        types = {name: k for k, name in enumerate(self.vertex_types, start=1)}
        spell = build_recurrence(0, spelling, types["spell_first"], types["spell"])
        spell_back = build_recurrence(
            spell.end, spelling, types["spell_back_first"], types["spell_back"]
        )
        words = self._build_words(types, rare, len(n_letters), spell, spell_back, spelling.ends - 1)
        forward, at = build_started_recurrence(
            words.end, along, types["forward_start"], types["forward"]
        )
        forward = append_arguments(forward, at, words.vertices)
        backward, back = build_started_recurrence(
            forward.end, along, types["backward_start"], types["backward"]
        )
        back = back[along.mirror_positions()]
        backward = append_arguments(backward, back, words.vertices)
        tag = build_block(backward.end, types["tag"], np.stack([at, back], axis=1))
        known = np.flatnonzero(n_letters == 0)
        ids = np.concatenate([chain.words for chain in instances])
        labels = np.concatenate([chain.labels for chain in instances])
        against = letters[spelling.mirror_positions()]
        spelt = ((spell.vertices, letters), (spell_back.vertices, against))
        return MiniBatch(
            graph=join_blocks(
                [spell, spell_back, words, forward, backward, tag],
                ("unbatchable", *self.vertex_types),
            ),
            pulls={
                "word": build_pull(tag.end, (words.vertices[known], ids[known])),
                "character": build_pull(tag.end, *spelt),
                "label": build_pull(tag.end, (tag.vertices, labels)),
            },
            outputs=tag.vertices,
            n_instances=len(instances),
        )

    @staticmethod
    def _build_words(
        types: Mapping[str, int],
        rare: np.ndarray[Any, Any],
        n: int,
        spell: VertexBlock,
        spell_back: VertexBlock,
        last: np.ndarray[Any, Any],
    ) -> VertexBlock:
        """Build a vertex for every word; a rare one reads the last states of both letter LSTMs."""
        kinds = np.full(n, types["word"], dtype=np.int32)
        kinds[rare] = types["rare"]
        args = np.full((n, 2), NONE, dtype=np.int32)
        args[rare, 0], args[rare, 1] = spell.base + last, spell_back.base + last
        return VertexBlock(spell_back.end, kinds, args)

    def spell_first(self, v: VertexTracer) -> None:
        """Compute the first step of the forward letter LSTM, from a state of zeros."""
        self._spell(v, "_spell", first=True)

    def spell(self, v: VertexTracer) -> None:
        """Compute a later step of the forward letter LSTM."""
        self._spell(v, "_spell", first=False)

    def spell_back_first(self, v: VertexTracer) -> None:
        """Compute the first step of the backward letter LSTM, from a state of zeros."""
        self._spell(v, "_spell_back", first=True)

    def spell_back(self, v: VertexTracer) -> None:
        """Compute a later step of the backward letter LSTM."""
        self._spell(v, "_spell_back", first=False)

    def _spell(self, v: VertexTracer, suffix: str, *, first: bool) -> None:
        gates = from_input(v, suffix, v.lookup("characters", v.pull("character")))
        if first:
            compute_first_step(v, gates, states="letter_")
        else:
            step(v, suffix, gates, states="letter_")

    def word(self, v: VertexTracer) -> None:
        """Compute the gate inputs of a word from its embedding."""
        self._to_gates(v, v.lookup("embedding", v.pull("word")))

    def rare(self, v: VertexTracer) -> None:
        """Compute the gate inputs of a rare word from the states of its letters."""
        self._to_gates(v, v.concat(v.gather(0).letter_h, v.gather(1).letter_h))

    def _to_gates(self, v: VertexTracer, x: Symbol) -> None:
        v.scatter(a_forward=from_input(v, "_forward", x), a_backward=from_input(v, "_backward", x))

    def forward_start(self, v: VertexTracer) -> None:
        """Compute the learned initial state of the forward direction."""
        start(v, "_forward", self.sizes.hidden_size)

    def forward(self, v: VertexTracer) -> None:
        """Compute a step of the forward direction."""
        step(v, "_forward", v.gather(1).a_forward)

    def backward_start(self, v: VertexTracer) -> None:
        """Compute the learned initial state of the backward direction."""
        start(v, "_backward", self.sizes.hidden_size)

    def backward(self, v: VertexTracer) -> None:
        """Compute a step of the backward direction."""
        step(v, "_backward", v.gather(1).a_backward)

    def tag(self, v: VertexTracer) -> None:
        """Compute t = tanh(W_tag [h_forward; h_backward] + b_tag)."""
        compute_tag(v)

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the tags and the negative log likelihood of the correct one."""
        classify(v)
