"""BiLSTM tagger in DyNet, its sentences side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from systems.on_dynet.models import bilstm
from systems.on_dynet.models.bilstm import Sentence
from systems.on_dynet.rounds import Round
from systems.on_dynet.side_by_side import read_side_by_side


class Network(bilstm.Network):
    """The same parameters and equations; a step is one of all sentences that go on."""

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of all words."""
        self.tagger.begin()
        words = [own for own, _ in sentences]
        labels = [label for _, own in sentences for label in own]
        logits = self.tagger.logits(*self._both_ways(words))
        yield Round(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])

    def _both_ways(self, words: list[list[int]]) -> Iterator[Any]:
        for direction, backward in zip(self.tagger.directions, (False, True), strict=True):
            yield read_side_by_side(
                direction.lstm, direction.first(), self.embedding, words, backward=backward
            )


NETWORKS = {"bilstm": Network}
