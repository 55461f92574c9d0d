"""Encoder-decoders and the parser in DyNet, written for one instance, with a segment per step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.parser import Parser
from dynbatch.harness.values.instances import SentencePair
from dynbatch.harness.values.parsed import ParsedSentence
from dynbatch.systems.on_dynet.layers import add_to_graph
from dynbatch.systems.on_dynet.runtime import ParameterStore
from dynbatch.systems.on_dynet.segments import GraphSegment

Pair = tuple[list[int], list[int]]  # source, target
# Words, tags, the tokens that each transition reads (-1: none), and its index.
ReadSentence = tuple[list[int], list[int], list[list[int]], list[int]]


class Seq2Seq:
    """Equations of dynbatch.harness.models.seq2seq."""

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.source = SentenceReader(store, "source")
        self.target = SentenceReader(store, "target")
        self.first = [*store.add_vectors("c_0"), *store.add_vectors("h_0")]
        self.classifier = store.add_matrices("W_out")[0]

    def read(self, pair: SentencePair) -> Pair:
        return pair.source.tolist(), pair.target.tolist()

    def build(self, pairs: Sequence[Pair]) -> Iterator[GraphSegment]:
        """Build all encoders, then yield the next step of all decoders until all have ended."""
        self.source.begin()
        self.target.begin()
        W_out = self.classifier.expr(True)
        start = self.source.lstm.initial_state(add_to_graph(self.first))
        decoder = self.target.lstm.initial_state()
        states = [decoder.set_s(self.encode_source(start, source)) for source, _ in pairs]
        for step in range(max(len(target) for _, target in pairs) - 1):
            losses: list[Any] = []
            outputs: list[Any] = [None] * len(pairs)
            for i, (_, target) in enumerate(pairs):
                if step + 1 < len(target):
                    states[i] = states[i].add_input(self.target.embed_word(target[step]))
                    outputs[i] = W_out * states[i].output()
                    losses.append(dy.pickneglogsoftmax(outputs[i], target[step + 1]))
            yield GraphSegment(dy.esum(losses), outputs)

    def encode_source(self, state: Any, source: list[int]) -> Any:
        """Return the state after the last word of the source."""
        for word in source:
            state = state.add_input(self.source.embed_word(word))
        return state.s()


class SentenceReader:
    """LSTM with the vectors of the words that it reads: tanh(E x + b_E)."""

    def __init__(self, store: ParameterStore, side: str) -> None:
        self.embedding = store.add_table(f"{side}_embedding")
        self.projection = [*store.add_vectors(f"b_E_{side}"), *store.add_matrices(f"E_{side}")]
        self.lstm = store.add_lstm(f"_{side}")

    def begin(self) -> None:
        self.b, self.E = add_to_graph(self.projection)

    def embed_word(self, word: int) -> Any:
        """Return the LSTM's input for a word."""
        return dy.tanh(dy.affine_transform([self.b, self.E, dy.lookup(self.embedding, word)]))


class Seq2SeqAtOnce(Seq2Seq):
    """Equations of dynbatch.harness.models.seq2seq_at_once."""

    def build(self, pairs: Sequence[Pair]) -> Iterator[GraphSegment]:
        """Yield expressions of the summed loss and of the logits of all predicted words."""
        self.source.begin()
        self.target.begin()
        start = self.source.lstm.initial_state(add_to_graph(self.first))
        decoder = self.target.lstm.initial_state()
        hidden: list[Any] = []
        labels: list[int] = []
        for source, target in pairs:
            state = decoder.set_s(self.encode_source(start, source))
            hidden += state.transduce([self.target.embed_word(word) for word in target[:-1]])
            labels += target[1:]
        logits = self.classifier.expr(True) * dy.concatenate_to_batch(hidden)
        yield GraphSegment(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])


class ParserNetwork:
    """Equations of dynbatch.harness.models.parser."""

    def __init__(self, model: Parser, store: ParameterStore) -> None:
        self.scores_of = model.index_scores
        self.words, self.tags = store.add_table("embedding"), store.add_table("tags")
        self.layers = [
            (store.add_lstm(f"_forward{layer}"), store.add_lstm(f"_backward{layer}"))
            for layer in ("", "_2")
        ]
        self.missing = store.add_vectors("missing")[0]
        self.hidden = [*store.add_vectors("b_mlp"), *store.add_matrices("W_mlp")]
        self.classifier = [*store.add_vectors("b_out"), *store.add_matrices("W_out")]

    def read(self, sentence: ParsedSentence) -> ReadSentence:
        labels = self.scores_of(sentence.kinds, sentence.arcs)
        columns = (sentence.words, sentence.tags, sentence.features, labels)
        words, tags, features, right = (column.tolist() for column in columns)
        return words, tags, features, right

    def build(self, sentences: Sequence[ReadSentence]) -> Iterator[GraphSegment]:
        """Build the vectors of all tokens, then yield the next transition of all parsers."""
        affine, concatenate = dy.affine_transform, dy.concatenate
        layers = [[lstm.initial_state() for lstm in layer] for layer in self.layers]
        missing = dy.tanh(self.missing.expr(True))
        b_mlp, W_mlp = add_to_graph(self.hidden)
        b_out, W_out = add_to_graph(self.classifier)
        # The vector of a missing token comes last, at index -1.
        vectors = [
            [*self._compute_vectors(words, tags, layers), missing] for words, tags, *_ in sentences
        ]
        for step in range(max(len(labels) for *_, labels in sentences)):
            losses: list[Any] = []
            scores: list[Any] = [None] * len(sentences)
            for i, (_, _, features, labels) in enumerate(sentences):
                if step < len(labels):
                    seen = concatenate([vectors[i][token] for token in features[step]])
                    hidden = dy.tanh(affine([b_mlp, W_mlp, seen]))
                    scores[i] = affine([b_out, W_out, hidden])
                    losses.append(dy.pickneglogsoftmax(scores[i], labels[step]))
            yield GraphSegment(dy.esum(losses), scores)

    def _compute_vectors(
        self, words: list[int], tags: list[int], layers: list[list[Any]]
    ) -> list[Any]:
        """Return a vector per token: both directions of the upper layer, concatenated."""
        concatenate, lookup = dy.concatenate, dy.lookup
        tokens = zip(words, tags, strict=True)
        vectors = [concatenate([lookup(self.words, w), lookup(self.tags, t)]) for w, t in tokens]
        for forward, backward in layers:
            there, back = forward.transduce(vectors), backward.transduce(vectors[::-1])
            pairs = zip(there, reversed(back), strict=True)
            vectors = [concatenate([h_f, h_b]) for h_f, h_b in pairs]
        return vectors


NETWORKS = {
    "seq2seq": Seq2Seq,
    "seq2seq_at_once": Seq2SeqAtOnce,
    "parser": ParserNetwork,
}
