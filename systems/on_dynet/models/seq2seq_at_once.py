"""Encoder-decoder in DyNet with all words given: one graph, one product for all scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from systems.on_dynet.models import seq2seq
from systems.on_dynet.models.seq2seq import Pair
from systems.on_dynet.rounds import Round


class Network(seq2seq.Network):
    """Equations of harness.models.seq2seq_at_once."""

    def build(self, pairs: Sequence[Pair]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of all predicted words."""
        self.source.begin()
        self.target.begin()
        start = self.source.lstm.initial_state([p.expr(True) for p in self.first])
        decoder = self.target.lstm.initial_state()
        hidden: list[Any] = []
        labels: list[int] = []
        for source, target in pairs:
            state = decoder.set_s(self.encoded(start, source))
            hidden += state.transduce([self.target.vector(word) for word in target[:-1]])
            labels += target[1:]
        logits = self.classifier.expr(True) * dy.concatenate_to_batch(hidden)
        yield Round(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])


NETWORKS = {"seq2seq_at_once": Network}
