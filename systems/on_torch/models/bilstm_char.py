"""BiLSTM tagger with letters of rare words in PyTorch, as written first and side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.values.instances import Chain
from systems.on_torch.parts.lstm import lstm, shared_names
from systems.on_torch.parts.output_layer import LateOutputs, LossWay
from systems.on_torch.parts.recurrences import Columnwise, Recurrence
from systems.on_torch.parts.rows import Order, to_device
from systems.on_torch.parts.sentences import (
    ReadChain,
    ReadChains,
    SideBySide,
    lengths_of,
    read_chains,
)
from systems.on_torch.parts.taggers import StartedLSTM, TagLayer
from systems.plans.trees import inverse


class _BiLSTMChar(nn.Module):
    """Parameters of harness.models.bilstm_char."""

    def __init__(self, model: Model, way: LossWay) -> None:
        super().__init__()
        sizes, options = model.sizes, model.options
        h, e = sizes.hidden_size, sizes.embedding_size
        letter = options["character_size"] or max(1, e // 4)
        self.embedding = nn.Embedding(sizes.of("words"), e, sparse=True)
        self.characters = nn.Embedding(sizes.of("characters"), letter)
        self.spell = lstm(letter, e // 2)
        self.spell_back = lstm(letter, e // 2)
        self.forwards, self.backwards = StartedLSTM(e, h), StartedLSTM(e, h)
        self.tag = TagLayer(h, options["mlp_size"] or h, sizes.of("classes"), way)
        self.SHARED = {
            "embedding": "embedding.weight",
            "characters": "characters.weight",
            **shared_names("spell", ["_spell"]),
            **shared_names("spell_back", ["_spell_back"]),
            **self.forwards.shared_names("forwards", ["_forward"]),
            **self.backwards.shared_names("backwards", ["_backward"]),
            **self.tag.shared_names("tag"),
        }


class Recursive(_BiLSTMChar):
    """A word and a sentence at a time through nn.LSTM, as a first version would be written."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "whole")

    def prepare(self, chains: Sequence[Chain]) -> ReadChains:
        """Tensors of words, labels and letters."""
        return read_chains(chains, self.embedding.weight.device)

    def forward(self, batch: ReadChains) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all words."""
        losses, outputs = [], []
        for known, chain in batch.with_vectors(self.embedding(batch.words)):
            x = self.read(known, chain)
            tags = self.tag(self.forwards(x), self.backwards(x.flip(0)).flip(0))
            outputs.append(self.tag.output(tags))
            losses.append(functional.cross_entropy(outputs[-1], chain.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def read(self, known: Tensor, chain: ReadChain) -> Tensor:
        """Vectors of a sentence's words, from those of the words that are looked up."""
        looked_up = iter(torch.split(known, 1))
        return torch.cat(
            [next(looked_up) if word is None else self.spelled(word) for word in chain.letters]
        )

    def spelled(self, letters: Tensor) -> Tensor:
        """Vector (1, embedding_size) of a rare word."""
        vectors = self.characters(letters)
        _, (there, _) = self.spell(vectors)
        _, (back, _) = self.spell_back(vectors.flip(0))
        return torch.cat([there, back], dim=1)


class Plan(NamedTuple):
    """A mini-batch of sentences and their rare words.

    known: words that are looked up. letters: of all rare words; last, first (n_rare,): where each
    one's ends and begins among them. read: from known and then rare words to places.
    """

    known: Tensor
    letters: Tensor
    labels: Tensor
    last: Tensor
    first: Tensor
    read: Order
    along: Any
    spelling: Any  # None where no word is rare


class Levels(SideBySide, _BiLSTMChar):
    """All rare words side by side, then all sentences; vectors and tags of all words at once."""

    def __init__(
        self,
        model: Model,
        recurrence: Recurrence = Columnwise(),  # noqa: B008 - has no state
        way: LossWay = "in_place",
    ) -> None:
        super().__init__(model, way)
        self.recurrence = recurrence

    def plan(self, chains: Sequence[Chain], device: torch.device) -> Plan:
        """Rare words are sentences of letters."""
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
            inverse(row_of_place),
            row_of_place,
        )
        known_ids, letters, labels, last, first, places, rows = to_device(device, *parts)
        spelling = self.recurrence.plan(n_letters[rare], device) if len(rare) else None
        along = self.recurrence.plan(lengths_of(chains), device)
        read = Order(places, rows)
        return Plan(known_ids, letters, labels, last, first, read, along, spelling)

    def forward(self, plan: Plan) -> tuple[Tensor, LateOutputs]:
        """Summed loss, logits of all words."""
        x, run = self.read(plan), self.recurrence.run
        there = run(self.forwards.lstm, x, plan.along, self.forwards.start, against=False)
        back = run(self.backwards.lstm, x, plan.along, self.backwards.start, against=True)
        tags = self.tag(there, back)
        return self.tag.output.loss(tags, plan.labels), self.tag.output.late(tags)

    def read(self, plan: Plan) -> Tensor:
        """Vectors of all words, by place."""
        vectors: Tensor = self.embedding(plan.known)
        if plan.spelling is not None:
            letters, run = self.characters(plan.letters), self.recurrence.run
            there = run(self.spell, letters, plan.spelling, against=False)
            back = run(self.spell_back, letters, plan.spelling, against=True)
            ends = [there.index_select(0, plan.last), back.index_select(0, plan.first)]
            vectors = torch.cat([vectors, torch.cat(ends, dim=1)])
        return plan.read.arrange(vectors)


EAGER = {"bilstm_char": Recursive}
LEVELS = {"bilstm_char": Levels}
