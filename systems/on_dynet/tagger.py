"""The tagger that BiLSTM and BiLSTM-char have in common: from words' vectors to their tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dynet as dy

from harness.models.parts.lstm import layer_suffix
from systems.on_dynet.runtime import ParameterStore


class Tagger:
    """Stacks of LSTMs in both directions from learned states; tanh and a classifier on top."""

    def __init__(self, store: ParameterStore, n_layers: int) -> None:
        self.directions = [_Direction(store, d, n_layers) for d in ("forward", "backward")]
        self.classifier = [*store.matrices("W_tag", 2, axis=0), *store.vectors("b_tag")]
        self.classifier += store.matrices("W_out")

    def begin(self) -> None:
        """Take the parameters into a new graph."""
        self.starts = [direction.start() for direction in self.directions]
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        self.W_forward, self.W_backward, self.b, self.W_out = (
            p.expr(True) for p in self.classifier
        )

    def logits(self, vectors: list[Any]) -> Iterator[Any]:
        """Scores of the tags of every word of a sentence, from the words' vectors."""
        affine, tanh = dy.affine_transform, dy.tanh
        W_f, W_b, b, W_out = self.W_forward, self.W_backward, self.b, self.W_out
        forward, backward = self.starts
        there = forward.transduce(vectors)
        back = reversed(backward.transduce(vectors[::-1]))
        for h_f, h_b in zip(there, back, strict=True):
            yield W_out * tanh(affine([b, W_f, h_f, W_b, h_b]))


class _Direction:
    def __init__(self, store: ParameterStore, name: str, n_layers: int) -> None:
        suffixes = [f"_{name}{layer_suffix(k)}" for k in range(1, n_layers + 1)]
        self.lstm = store.lstm(*suffixes)
        self.first = [
            store.vectors(f"{state}_0{suffix}")[0] for state in "ch" for suffix in suffixes
        ]

    def start(self) -> Any:
        return self.lstm.initial_state([p.expr(True) for p in self.first])
