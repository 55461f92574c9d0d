"""StackRNN in DyNet, written for one sentence; parsers go on together, a step a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.stack_rnn import StackRNN
from harness.values.instances import Chain
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Sentence = tuple[list[int], list[int], list[bool]]  # words; labels of steps; whether they shift
LAYERS = ("push", "compose", "decide")


class Network:
    """Equations of harness.models.stack_rnn; a concatenation is two products of half a matrix."""

    def __init__(self, model: StackRNN, store: ParameterStore) -> None:
        self.model, self.embedding = model, store.table("embedding")
        self.buffer = [*store.vectors("b_buffer"), *store.matrices("W_buffer")]
        self.buffer += store.matrices("U_buffer")
        self.layers = [
            [*store.vectors(f"b_{name}"), *store.matrices(f"W_{name}", 2, axis=0)]
            for name in LAYERS
        ]
        self.ends = [*store.vectors("end"), *store.vectors("bottom")]
        self.scores = store.matrices("W_out")[0]

    def read(self, sentence: Chain) -> Sentence:
        """A sentence as a DyNet program holds it, and the actions that it will take."""
        labels, actions = self.model.labels(sentence), self.model.actions(sentence)
        return sentence.words.tolist(), labels, actions

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Round]:
        """All buffers; then every parser's next decision, until all have ended."""
        affine, tanh = dy.affine_transform, dy.tanh
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        push, compose, decide = ([p.expr(True) for p in layer] for layer in self.layers)
        end, bottom = (p.expr(True) for p in self.ends)
        W_out = self.scores.expr(True)

        def of_two(layer: Sequence[Any], first: Any, second: Any) -> Any:
            b, W_1, W_2 = layer
            return tanh(affine([b, W_1, first, W_2, second]))

        buffers = [self._buffer(words, end) for words, *_ in sentences]
        stacks = [[bottom, of_two(push, buffer.pop(), bottom)] for buffer in buffers]
        for step in range(max(len(labels) for _, labels, _ in sentences)):
            losses: list[Any] = []
            scores: list[Any] = [None] * len(sentences)
            for i, (_, labels, actions) in enumerate(sentences):
                if step >= len(labels):
                    continue
                stack, buffer = stacks[i], buffers[i]
                if step > 0:
                    if actions[step - 1]:
                        pushed = buffer.pop()
                    else:
                        upper = stack.pop()
                        pushed = of_two(compose, stack.pop(), upper)
                    stack.append(of_two(push, pushed, stack[-1]))
                scores[i] = W_out * of_two(decide, stack[-1], buffer[-1])
                losses.append(dy.pickneglogsoftmax(scores[i], labels[step]))
            yield Round(dy.esum(losses), scores)

    def _buffer(self, words: Sequence[int], end: Any) -> list[Any]:
        """States of the buffer, from its end."""
        affine, tanh, lookup = dy.affine_transform, dy.tanh, dy.lookup
        b, W, U = (p.expr(True) for p in self.buffer)
        states = [end]
        for word in reversed(words):
            states.append(tanh(affine([b, W, lookup(self.embedding, word)]) + U * states[-1]))
        return states
