"""Encoder-decoder in DyNet, written for one pair; decoders go on together, a step a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.contracts.model import Model
from harness.values.instances import SentencePair
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Pair = tuple[list[int], list[int]]  # source, target


class Network:
    """Equations of harness.models.seq2seq.

    Measured (source build, agenda, IWSLT'15, hidden 256, batch 32, pairs/s in training): this one
    36.1; every step's best words found by DyNet, too, 36.0; its scores copied to Python as an array
    23.5. With best words found: the scores of a round in one mini-batched product 36.4.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.source = Reader(store, "source")
        self.target = Reader(store, "target")
        self.first = [*store.vectors("c_0"), *store.vectors("h_0")]
        self.classifier = store.matrices("W_out")[0]

    def read(self, pair: SentencePair) -> Pair:
        """A pair as a DyNet program holds it: lists of Python numbers."""
        return pair.source.tolist(), pair.target.tolist()

    def build(self, pairs: Sequence[Pair]) -> Iterator[Round]:
        """Every encoder; then the decoders' next step and its loss, until all have ended."""
        self.source.begin()
        self.target.begin()
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        W_out = self.classifier.expr(True)
        start = self.source.lstm.initial_state([p.expr(True) for p in self.first])
        decoder = self.target.lstm.initial_state()
        states = [decoder.set_s(self.encoded(start, source)) for source, _ in pairs]
        for step in range(max(len(target) for _, target in pairs) - 1):
            losses: list[Any] = []
            outputs: list[Any] = [None] * len(pairs)
            for i, (_, target) in enumerate(pairs):
                if step + 1 < len(target):
                    states[i] = states[i].add_input(self.target.vector(target[step]))
                    outputs[i] = W_out * states[i].output()
                    losses.append(dy.pickneglogsoftmax(outputs[i], target[step + 1]))
            yield Round(dy.esum(losses), outputs)

    def encoded(self, state: Any, source: list[int]) -> Any:
        """The state behind the source's last word."""
        for word in source:
            state = state.add_input(self.source.vector(word))
        return state.s()


class Reader:
    """An LSTM and the words that it reads: tanh(E x + b_E)."""

    def __init__(self, store: ParameterStore, side: str) -> None:
        self.embedding = store.table(f"{side}_embedding")
        self.projection = [*store.vectors(f"b_E_{side}"), *store.matrices(f"E_{side}")]
        self.lstm = store.lstm(f"_{side}")

    def begin(self) -> None:
        """Take the parameters into a new graph."""
        self.b, self.E = (p.expr(True) for p in self.projection)

    def vector(self, word: int) -> Any:
        """What the LSTM reads of a word."""
        return dy.tanh(dy.affine_transform([self.b, self.E, dy.lookup(self.embedding, word)]))


NETWORKS = {"seq2seq": Network}
