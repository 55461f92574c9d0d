"""Dependency parser in DyNet, written for one sentence; parsers go on together, a step a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.parser import Parser
from harness.values.parsed import ParsedSentence
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

# Words, tags; the tokens that each transition looks at (-1: none), and its number.
Sentence = tuple[list[int], list[int], list[list[int]], list[int]]


class Network:
    """Equations of harness.models.parser.

    Measured against other ways to write it (source build, agenda, UD English EWT, hidden 200, batch
    64, sentences/s in training): this one 156; W_mlp in eight pieces of an affine transform 153;
    those pieces' products once for every token 158. All copied scores to Python,
    which took nothing.
    """

    def __init__(self, model: Parser, store: ParameterStore) -> None:
        self.scores_of = model.scores_of
        self.words, self.tags = store.table("embedding"), store.table("tags")
        self.layers = [
            (store.lstm(f"_forward{layer}"), store.lstm(f"_backward{layer}"))
            for layer in ("", "_2")
        ]
        self.missing = store.vectors("missing")[0]
        self.hidden = [*store.vectors("b_mlp"), *store.matrices("W_mlp")]
        self.classifier = [*store.vectors("b_out"), *store.matrices("W_out")]

    def read(self, sentence: ParsedSentence) -> Sentence:
        """A sentence as a DyNet program holds it: lists of Python numbers."""
        labels = self.scores_of(sentence.kinds, sentence.arcs)
        columns = (sentence.words, sentence.tags, sentence.features, labels)
        words, tags, features, right = (column.tolist() for column in columns)
        return words, tags, features, right

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Round]:
        """Vectors of all tokens; then every parser's next transition, until all have ended."""
        affine, concatenate = dy.affine_transform, dy.concatenate
        layers = [[lstm.initial_state() for lstm in layer] for layer in self.layers]
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        missing = dy.tanh(self.missing.expr(True))
        b_mlp, W_mlp = (p.expr(True) for p in self.hidden)
        b_out, W_out = (p.expr(True) for p in self.classifier)
        # Behind the last token's, where -1 finds it.
        vectors = [[*self._vectors(words, tags, layers), missing] for words, tags, *_ in sentences]
        for step in range(max(len(labels) for *_, labels in sentences)):
            losses: list[Any] = []
            scores: list[Any] = [None] * len(sentences)
            for i, (_, _, features, labels) in enumerate(sentences):
                if step < len(labels):
                    seen = concatenate([vectors[i][token] for token in features[step]])
                    hidden = dy.tanh(affine([b_mlp, W_mlp, seen]))
                    scores[i] = affine([b_out, W_out, hidden])
                    losses.append(dy.pickneglogsoftmax(scores[i], labels[step]))
            yield Round(dy.esum(losses), scores)

    def _vectors(self, words: list[int], tags: list[int], layers: list[list[Any]]) -> list[Any]:
        """Both directions of both layers, side by side, for every token."""
        concatenate, lookup = dy.concatenate, dy.lookup
        tokens = zip(words, tags, strict=True)
        found = [concatenate([lookup(self.words, w), lookup(self.tags, t)]) for w, t in tokens]
        for forward, backward in layers:
            there, back = forward.transduce(found), backward.transduce(found[::-1])
            pairs = zip(there, reversed(back), strict=True)
            found = [concatenate([h_f, h_b]) for h_f, h_b in pairs]
        return found


NETWORKS = {"parser": Network}
