"""Models of sentences in JAX: LSTMs in one direction or both, and rare words by their letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.bilstm import DIRECTIONS
from dynbatch.harness.models.parts.lstm import format_layer_suffix
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_jax.models.layers import (
    compute_cross_entropy,
    compute_linear_cross_entropy,
)
from dynbatch.systems.on_jax.models.lstm import (
    ColumnSizes,
    SentenceColumns,
    lay_out_columns,
    make_zero_start,
    repeat_start,
    run_both_directions,
    run_lstms,
)
from dynbatch.systems.on_jax.scan import Given, ProgramInputs, pack_inputs, pad_vector, round_up
from dynbatch.systems.plans.sentences import count_words


def plan_sentences(
    chains: Sequence[Chain], n_widths: int, multiple: int, *, both_ways: bool
) -> SentenceColumns:
    """Return the sentences' columns, with words and labels by position (0 and -1 for padding)."""
    sizes, vectors = lay_out_columns(count_words(chains), n_widths, multiple)
    used = {name: v for name, v in vectors.items() if both_ways or "mirrored" not in name}
    words = np.concatenate([chain.words for chain in chains])
    labels = np.concatenate([chain.labels for chain in chains])
    used["words"] = pad_vector(words, sizes.n_words, 0)
    used["labels"] = pad_vector(labels, sizes.n_words, -1)
    return SentenceColumns(sizes, used)


class SentenceNetwork:
    """Base class of the models of sentences.

    Attributes:
        both_ways: True if sentences are also read backwards.
    """

    tables: Mapping[str, str] = {"embedding": "words"}
    both_ways: ClassVar[bool]

    def __init__(self, model: Model, options: Any) -> None:
        self.layers = [format_layer_suffix(k) for k in range(1, model.options.get("layers", 1) + 1)]
        self.options = options

    def plan(self, chains: Sequence[Chain]) -> ProgramInputs:
        """Return the columns of the sentences, and words and labels by position."""
        widths, multiple = self.options.widths, self.options.multiple
        plan = plan_sentences(chains, widths, multiple, both_ways=self.both_ways)
        return pack_inputs(plan.sizes, slice(int(count_words(chains).sum())), plan.vectors)


class VarLSTM(SentenceNetwork):
    """Equations of dynbatch.harness.models.var_lstm over columns of words."""

    both_ways = False

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and the input of the output layer (n_words, h)."""
        weights, vectors, ids, sizes, _ = given
        x = vectors["embedding"]
        for suffix in self.layers:
            gates = (x @ weights[f"W{suffix}"] + weights[f"b{suffix}"])[ids["places"]]
            start = make_zero_start(weights, suffix, sizes.widths[0])
            ((h, _),) = run_lstms(sizes.widths, [gates], [weights[f"U{suffix}"]], [start], ids)
            x = h[ids["rows"]]
        return compute_linear_cross_entropy(x, weights["W_out"], weights["b_out"], ids["labels"]), x

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the logits of all words."""
        return hidden @ weights["W_out"] + weights["b_out"]


class BiLSTM(SentenceNetwork):
    """Equations of harness/models/bilstm.py over columns of words; one loop for both directions."""

    both_ways = True

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and the input of the classifier (n_words, mlp_size)."""
        return self.tag_words(given.vectors["embedding"], given, given.sizes.widths)

    def tag_words(
        self, vectors: Array, given: Given, widths: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """Return the results of `loss` for vectors of all words."""
        weights, ids, x = given.weights, given.ids, [vectors] * 2
        for layer in self.layers:
            names = [f"_{direction}{layer}" for direction in DIRECTIONS]
            starts = [repeat_start(weights, name, widths[0]) for name in names]
            x = run_both_directions(x, weights, names, starts, widths, ids)
        t = jnp.tanh(jnp.concatenate(x, axis=1) @ weights["W_tag"] + weights["b_tag"])
        return compute_cross_entropy(self.outputs(weights, t), ids["labels"]), t

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the scores of the tags of all words."""
        return hidden @ weights["W_out"]


class SpellerSizes(NamedTuple):
    """Sizes that a program is compiled for: columns of words, and of letters of rare words.

    `letters` is None if no word is rare.
    """

    words: ColumnSizes
    letters: ColumnSizes | None


class BiLSTMChar(BiLSTM):
    """Equations of harness/models/bilstm_char.py: all rare words first, then all sentences."""

    tables: Mapping[str, str] = {"embedding": "words", "characters": "letters"}

    def plan(self, chains: Sequence[Chain]) -> ProgramInputs:
        """Return the columns of the sentences and of their rare words.

        Further vectors: letters by position, `last` and `first` with the positions of the last and
        the first letter of every rare word, and `spelled` (n_words,) with the row of every word's
        vector, among looked-up vectors followed by those of rare words.
        """
        widths, multiple = self.options.widths, self.options.multiple
        plan = plan_sentences(chains, widths, multiple, both_ways=True)
        vectors = plan.vectors
        n_letters = np.concatenate([np.diff(chain.char_start) for chain in chains])
        rare = np.flatnonzero(n_letters)
        spelled = np.arange(plan.sizes.n_words)
        spelled[rare] = plan.sizes.n_words + np.arange(len(rare))
        letters = np.concatenate([chain.characters for chain in chains])
        if len(rare) == 0:
            vectors["letters"] = np.zeros(1, np.int32)
            return pack_inputs(SpellerSizes(plan.sizes, None), slice(len(n_letters)), vectors)
        lengths = n_letters[rare].astype(np.int64)
        sizes, of_letters = lay_out_columns(lengths, widths, multiple)
        ends, n_rare = np.cumsum(lengths), round_up(len(rare), multiple)
        vectors |= {f"letter_{name}": vector for name, vector in of_letters.items()}
        vectors |= {
            "letters": pad_vector(letters, sizes.n_words, 0),
            "last": pad_vector(ends - 1, n_rare, 0),
            "first": pad_vector(ends - lengths, n_rare, 0),
            "spelled": spelled,
        }
        return pack_inputs(SpellerSizes(plan.sizes, sizes), slice(len(n_letters)), vectors)

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and the input of the classifier (n_words, mlp_size)."""
        vectors, (words, letters) = given.vectors["embedding"], given.sizes
        if letters is not None:
            rare = self.spell(given, letters.widths)
            vectors = jnp.concatenate([vectors, rare])[given.ids["spelled"]]
        return self.tag_words(vectors, given, words.widths)

    def spell(self, given: Given, widths: tuple[int, ...]) -> Array:
        """Return the vectors of all rare words (n_rare, embedding_size)."""
        weights, vectors, ids, _, _ = given
        names = ["_spell", "_spell_back"]
        starts = [make_zero_start(weights, name, widths[0]) for name in names]
        own = {name.removeprefix("letter_"): x for name, x in ids.items() if "letter_" in name}
        x = [vectors["characters"]] * 2
        there, back = run_both_directions(x, weights, names, starts, widths, own)
        return jnp.concatenate([there[ids["last"]], back[ids["first"]]], axis=1)


NETWORKS = {
    "var_lstm": VarLSTM,
    "bilstm": BiLSTM,
    "bilstm_char": BiLSTMChar,
}
