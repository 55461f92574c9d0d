"""Var-LSTM language model in DyNet, its sentences side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dynet as dy

from systems.on_dynet.models import var_lstm
from systems.on_dynet.models.var_lstm import Sentence
from systems.on_dynet.rounds import Round
from systems.on_dynet.side_by_side import read_side_by_side


class Network(var_lstm.Network):
    """The same parameters and equations; a step is one of all sentences that go on."""

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of all words."""
        words = [own for own, _ in sentences]
        labels = [label for _, own in sentences for label in own]
        hidden = read_side_by_side(self.lstm, [], self.embedding, words)
        logits = self.logits(hidden)
        yield Round(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])


NETWORKS = {"var_lstm": Network}
