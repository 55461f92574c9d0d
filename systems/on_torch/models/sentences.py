"""Sentences in PyTorch: language models one at a time; these and taggers all in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.parts.lstm import format_layer_suffix
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_torch.layers import (
    LateOutputs,
    LossWay,
    PlainNet,
    StartedLSTM,
    make_output_layer,
)
from dynbatch.systems.on_torch.models.lstm import Columnwise, Recurrence
from dynbatch.systems.on_torch.net import Batched, Net, OneByOne, score_labels
from dynbatch.systems.on_torch.products import apply_linear
from dynbatch.systems.on_torch.rows import RowPermutation, to_device, to_tensor
from dynbatch.systems.plans.sentences import count_words
from dynbatch.systems.plans.trees import invert_permutation


class ReadChains(NamedTuple):
    """Words of all sentences, and labels of each.

    One embedding lookup serves the mini-batch. With one lookup per sentence, each sparse gradient
    would be added to the others by copying all of them.
    """

    words: Tensor
    labels: list[Tensor]


class SentenceBySentence(OneByOne):
    """One sentence at a time."""

    embedding: nn.Embedding

    def prepare(self, chains: Sequence[Chain]) -> ReadChains:
        """Convert words and labels to tensors."""
        device = next(self.parameters()).device
        words = np.concatenate([chain.words for chain in chains])
        labels = [to_tensor(chain.labels, device) for chain in chains]
        return ReadChains(to_tensor(words, device), labels)

    def yield_scores(self, batch: ReadChains) -> Iterator[tuple[Tensor, Tensor]]:
        vectors = torch.split(self.embedding(batch.words), [len(own) for own in batch.labels])
        for x, labels in zip(vectors, batch.labels, strict=True):
            yield self.score_words(x), labels

    def score_words(self, x: Tensor) -> Tensor:
        """Return scores (n, n_classes) of the words of one sentence, given their vectors."""
        raise NotImplementedError


class SentenceBatch(NamedTuple):
    """All words and labels (n,), and the plan of the LSTMs."""

    words: Tensor
    labels: Tensor
    along: Any


class SentencesSideBySide(Batched):
    """All sentences in parallel; one output layer over all words, without padding.

    Attributes:
        recurrence: method to run LSTMs.
    """

    recurrence: Recurrence = Columnwise()

    def plan(self, chains: Sequence[Chain], device: torch.device) -> Any:
        words, labels = to_device(
            device,
            np.concatenate([chain.words for chain in chains]),
            np.concatenate([chain.labels for chain in chains]),
        )
        return SentenceBatch(words, labels, self.recurrence.plan(count_words(chains), device))


class VarLSTM(Net):
    """Parameters of dynbatch.harness.models.var_lstm."""

    def __init__(self, model: Model, way: LossWay = "whole") -> None:
        super().__init__(model)
        self.embedding = self.make_table("embedding")
        self.lstm = self.make_lstm(*map(format_layer_suffix, range(1, model.options["layers"] + 1)))
        self.output = make_output_layer(self, "b_out", way)


class EagerVarLSTM(VarLSTM, SentenceBySentence):
    """One sentence at a time through nn.LSTM, as a first version is written."""

    def score_words(self, x: Tensor) -> Tensor:
        h, _ = self.lstm(x)
        logits: Tensor = self.output(h)
        return logits


class LevelsVarLSTM(VarLSTM, SentencesSideBySide):
    """All sentences in parallel."""

    def __init__(
        self, model: Model, recurrence: Recurrence | None = None, way: LossWay = "in_place"
    ) -> None:
        super().__init__(model, way)
        self.recurrence = recurrence or self.recurrence

    def forward(self, plan: SentenceBatch) -> tuple[Tensor, LateOutputs]:
        h = self.recurrence.run(self.lstm, self.embedding(plan.words), plan.along, against=False)
        return self.output.loss(h, plan.labels), self.output.defer_logits(h)


class LevelsTagger(SentencesSideBySide):
    """All sentences in parallel, and the tags of all words at once.

    There is a stack of layers per direction. The classifier reads tanh of a layer over both
    directions.
    """

    def __init__(
        self, model: Model, recurrence: Recurrence | None = None, way: LossWay = "in_place"
    ) -> None:
        super().__init__(model)
        self.recurrence = recurrence or self.recurrence
        ends = [format_layer_suffix(k) for k in range(1, model.options.get("layers", 1) + 1)]
        self.embedding = self.make_table("embedding")
        self.forwards = StartedLSTM(self, [f"_forward{end}" for end in ends])
        self.backwards = StartedLSTM(self, [f"_backward{end}" for end in ends])
        self.mlp = self.make_linear("W_tag", "b_tag")
        self.output = make_output_layer(self, None, way)

    def forward(self, plan: Any) -> tuple[Tensor, LateOutputs]:
        x, run = self.read(plan), self.recurrence.run
        there = run(self.forwards.lstm, x, plan.along, self.forwards.start, against=False)
        back = run(self.backwards.lstm, x, plan.along, self.backwards.start, against=True)
        both = torch.cat([there, back], dim=1)
        tags = torch.tanh(apply_linear(both, self.mlp.weight, self.mlp.bias))
        return self.output.loss(tags, plan.labels), self.output.defer_logits(tags)

    def read(self, plan: Any) -> Tensor:
        """Return vectors of all words, by position."""
        vectors: Tensor = self.embedding(plan.words)
        return vectors


class SpellerBatch(NamedTuple):
    """Mini-batch of sentences and their rare words.

    Attributes:
        known: looked-up words.
        letters: letters of all rare words.
        labels: labels by position.
        last: (n_rare,) index of the last letter of each rare word.
        first: (n_rare,) index of the first letter of each rare word.
        places: permutation between positions and rows, which are looked-up words, then rare words.
        along: plan of the sentences' LSTMs.
        spelling: plan of the rare words' LSTMs; None if no word is rare.
    """

    known: Tensor
    letters: Tensor
    labels: Tensor
    last: Tensor
    first: Tensor
    places: RowPermutation
    along: Any
    spelling: Any


class LevelsSpeller(LevelsTagger):
    """All rare words in parallel, then all sentences; vectors and tags of all words at once."""

    def __init__(
        self, model: Model, recurrence: Recurrence | None = None, way: LossWay = "in_place"
    ) -> None:
        super().__init__(model, recurrence, way)
        self.characters = self.make_table("characters", sparse=False)
        self.spell, self.spell_back = self.make_lstm("_spell"), self.make_lstm("_spell_back")

    def plan(self, chains: Sequence[Chain], device: torch.device) -> SpellerBatch:
        """Plan rare words as sentences of letters, and all sentences."""
        n_letters = np.concatenate([np.diff(chain.char_start) for chain in chains]).astype(np.int64)
        known, rare = np.flatnonzero(n_letters == 0), np.flatnonzero(n_letters)
        ends = np.cumsum(n_letters[rare])
        row_of_place = np.concatenate([known, rare])
        parts = (
            np.concatenate([chain.words for chain in chains])[known],
            np.concatenate([chain.characters for chain in chains]),
            np.concatenate([chain.labels for chain in chains]),
            ends - 1,
            ends - n_letters[rare],
            invert_permutation(row_of_place),
            row_of_place,
        )
        known_ids, letters, labels, last, first, places, rows = to_device(device, *parts)
        spelling = self.recurrence.plan(n_letters[rare], device) if len(rare) else None
        along = self.recurrence.plan(count_words(chains), device)
        order = RowPermutation(places, rows)
        return SpellerBatch(known_ids, letters, labels, last, first, order, along, spelling)

    def read(self, plan: SpellerBatch) -> Tensor:
        vectors: Tensor = self.embedding(plan.known)
        if plan.spelling is not None:
            letters, run = self.characters(plan.letters), self.recurrence.run
            there = run(self.spell, letters, plan.spelling, against=False)
            back = run(self.spell_back, letters, plan.spelling, against=True)
            ends = [there.index_select(0, plan.last), back.index_select(0, plan.first)]
            vectors = torch.cat([vectors, torch.cat(ends, dim=1)])
        return plan.places.arrange(vectors)


class EagerBiRNN(PlainNet, SentenceBySentence):
    """One sentence at a time, word by word in both directions, because nn.RNN has no sigmoid."""

    def score_words(self, x: Tensor) -> Tensor:
        there, back = (
            self.compute_states(x, "forward"),
            self.compute_states(x.flip(0), "backward").flip(0),
        )
        both = torch.cat([there, back], dim=1)
        return torch.relu(torch.addmm(self["b_token"], both, self["W_token"]))

    def compute_states(self, x: Tensor, direction: str) -> Tensor:
        """Return h (n, h) of one sentence."""
        U = self[f"U_{direction}"]
        inputs = torch.addmm(self[f"b_{direction}"], x, self[f"W_{direction}"])
        first, *others = torch.split(inputs, 1)
        states = [torch.sigmoid(first)]
        for own in others:
            states.append(torch.sigmoid(torch.addmm(own, states[-1], U)))
        return torch.cat(states)


class LevelsBiRNN(PlainNet, SentencesSideBySide):
    """All sentences in parallel, longest first; each step has those that have not ended."""

    def forward(self, plan: SentenceBatch) -> tuple[Tensor, Tensor]:
        x = self.embedding(plan.words)
        both = [self.compute_states(x, plan, "forward"), self.compute_states(x, plan, "backward")]
        scores = self.get_product("W_token", "b_token")(torch.cat(both, dim=1)).relu_()
        return score_labels(scores, plan.labels)

    def compute_states(self, x: Tensor, plan: SentenceBatch, direction: str) -> Tensor:
        """Return h (n, h) by position, given inputs x by position."""
        order = plan.along.along if direction == "forward" else plan.along.against
        inputs = self.get_product(f"W_{direction}", f"b_{direction}")(order.arrange(x))
        states, add_product = (
            torch.split(inputs, plan.along.sizes),
            self.get_product(f"U_{direction}").add_to,
        )
        states[0].sigmoid_()
        for before, own in pairwise(states):
            add_product(own, before[: len(own)]).sigmoid_()
        result: Tensor = order.restore(inputs)
        return result


EAGER = {
    "var_lstm": EagerVarLSTM,
    "birnn": EagerBiRNN,
}
LEVELS = {
    "var_lstm": LevelsVarLSTM,
    "bilstm": LevelsTagger,
    "bilstm_char": LevelsSpeller,
    "birnn": LevelsBiRNN,
}
