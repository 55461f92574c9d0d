"""The tagger that BiLSTM and BiLSTM-char have in common: from words' vectors to tags' scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dynet as dy

from harness.models.parts.lstm import layer_suffix
from systems.on_dynet.runtime import ParameterStore


class Direction:
    """A stack of LSTMs that read a sentence in one direction, from learned states."""

    def __init__(self, store: ParameterStore, name: str, n_layers: int) -> None:
        suffixes = [f"_{name}{layer_suffix(k)}" for k in range(1, n_layers + 1)]
        self.lstm = store.lstm(*suffixes)
        self._first = [store.vectors(f"{s}_0{suffix}")[0] for s in "ch" for suffix in suffixes]

    def first(self) -> list[Any]:
        """Expressions of the states before the first word: all cells, then all outputs."""
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        return [p.expr(True) for p in self._first]


class Tagger:
    """Stacks of LSTMs in both directions; tanh and a classifier on top."""

    def __init__(self, store: ParameterStore, n_layers: int) -> None:
        self.directions = [Direction(store, d, n_layers) for d in ("forward", "backward")]
        self.classifier = [*store.vectors("b_tag"), *store.matrices("W_tag", 2, axis=0)]
        self.classifier += store.matrices("W_out")

    def begin(self) -> None:
        """Take the parameters into a new graph."""
        self._starts = [d.lstm.initial_state(d.first()) for d in self.directions]
        self._expressions = [p.expr(True) for p in self.classifier]

    def sentence(self, vectors: list[Any]) -> Iterator[Any]:
        """Scores of the tags of every word of a sentence, from the words' vectors."""
        forward, backward = self._starts
        there = forward.transduce(vectors)
        back = backward.transduce(vectors[::-1])
        return map(self.logits, there, reversed(back))

    def logits(self, h_forward: Any, h_backward: Any) -> Any:
        """Scores of the tags, from the outputs of both directions."""
        b, W_forward, W_backward, W_out = self._expressions
        t = dy.tanh(dy.affine_transform([b, W_forward, h_forward, W_backward, h_backward]))
        return W_out * t
