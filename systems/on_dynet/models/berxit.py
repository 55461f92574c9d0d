"""Berxit in DyNet, written for one sentence; DyNet batches sentences, a layer of all a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.berxit import Berxit
from harness.values.instances import Chain
from systems.on_dynet.classifier import classified
from systems.on_dynet.rounds import Part
from systems.on_dynet.runtime import ParameterStore
from systems.on_dynet.together import Program, together

Sentence = tuple[list[int], int, int]  # words of all tokens, label, layers that it goes through
CUBE = 0.044715  # of gelu, see harness.vertex.tracing
ROOT = 0.7978845608028654  # of 2 / pi


class Network:
    """Equations of harness.models.berxit.

    Tokens are the mini-batch of one sentence's expressions, and heads that of its attention, as a
    user of DyNet would have it, so that what is left to DyNet's batching are sentences.
    """

    def __init__(self, model: Berxit, store: ParameterStore) -> None:
        self.model, h = model, model.sizes.hidden_size
        self.n_heads, self.n_tokens, self.width = model.n_heads, model.tokens, h
        self.embedding, self.places = store.table("embedding"), store.table("places")
        names = (*("q", "k", "v", "heads", "up", "down", "exit"),)
        self.layers = {n: [*store.vectors(f"b_{n}"), *store.matrices(f"W_{n}")] for n in names}
        norms = {"token": "b_token", "heads": "b_heads_norm", "layer": "b_layer"}
        self.norms = {
            n: [*store.vectors(f"gain_{n}"), *store.vectors(bias)] for n, bias in norms.items()
        }
        self.classifier = store.matrices("W_out")[0]

    def read(self, chain: Chain) -> Sentence:
        """A sentence as a DyNet program holds it: Python numbers."""
        model = self.model
        return model.words(chain), int(chain.labels[0]), model.n_layers(chain)

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Part]:
        """The last exits of all sentences, a layer a round; then the scores of all of them."""
        layers = {name: [p.expr(True) for p in found] for name, found in self.layers.items()}
        norms = {name: [p.expr(True) for p in found] for name, found in self.norms.items()}
        programs = [self._exit(words, n, layers, norms) for words, _, n in sentences]
        exits = yield from together(programs)
        yield classified(self.classifier, exits, [label for _, label, _ in sentences])

    def _exit(
        self, words: list[int], n_layers: int, layers: dict[str, Any], norms: dict[str, Any]
    ) -> Program[Any]:
        """Every exit but the last decides whether the sentence goes on."""
        places = dy.lookup_batch(self.places, list(range(self.n_tokens)))
        x = _norm(norms["token"], dy.lookup_batch(self.embedding, words) + places)
        for layer in range(1, n_layers + 1):
            heads = _affine(layers["heads"], self._attention(layers, x))
            a = _norm(norms["heads"], x + heads)
            x = _norm(norms["layer"], a + _affine(layers["down"], _gelu(_affine(layers["up"], a))))
            leaving = dy.tanh(_affine(layers["exit"], dy.pick_batch_elem(x, 0)))
            if layer < self.model.layers:
                yield leaving
        return leaving

    def _attention(self, layers: dict[str, Any], x: Any) -> Any:
        """softmax(k^T q / sqrt(columns of a head)), a column for each token that asks."""
        q, k, v = (self._cut(_affine(layers[part], x)) for part in "qkv")
        scores = dy.transpose(k) * (q * (self.n_heads / self.width) ** 0.5)
        mixed = v * dy.softmax(scores)
        return self._joined(mixed)

    def _cut(self, x: Any) -> Any:
        """Tokens as a mini-batch (h) to heads as one (columns of a head, tokens)."""
        columns = self.width // self.n_heads
        whole = dy.reshape(x, (columns, self.n_heads, self.n_tokens))
        turned = dy.transpose(whole, [0, 2, 1])
        return dy.reshape(turned, (columns, self.n_tokens), batch_size=self.n_heads)

    def _joined(self, x: Any) -> Any:
        """The other way round."""
        columns = self.width // self.n_heads
        whole = dy.reshape(x, (columns, self.n_tokens, self.n_heads))
        turned = dy.transpose(whole, [0, 2, 1])
        return dy.reshape(turned, (self.width,), batch_size=self.n_tokens)


def _affine(weights: Sequence[Any], x: Any) -> Any:
    return dy.affine_transform([*weights, x])


def _norm(weights: Sequence[Any], x: Any) -> Any:
    gain, bias = weights
    return dy.layer_norm(x, gain, bias)


def _gelu(x: Any) -> Any:
    # Numbers on the right: the wheel's expressions take none on the left.
    return dy.cmult(x, dy.tanh((x + dy.cube(x) * CUBE) * ROOT) + 1.0) * 0.5


NETWORKS = {"berxit": Network}
