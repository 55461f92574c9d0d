"""StackRNN in DyNet, written for one sentence; parsers go on together, an action a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.stack_rnn import StackRNN
from harness.values.instances import Chain
from systems.on_dynet.classifier import classified
from systems.on_dynet.rounds import Part
from systems.on_dynet.runtime import ParameterStore
from systems.on_dynet.together import Program, together

Sentence = tuple[list[int], list[bool], list[int]]  # words, whether a step shifts, labels of steps


class Network:
    """Equations of harness.models.stack_rnn; of two joined vectors each has its part of the matrix.

    Measured on a busy machine, processor time of a mini-batch of 64, hidden 256, by agenda and by
    depth: this one 33.6 and 36.7 ms; W x + b of the buffer apart 34.8 and 37.0; scores and losses
    in every round, and no value read, 34.0 and 36.5 (beside 34.0 and 35.4 of this one then).
    """

    def __init__(self, model: StackRNN, store: ParameterStore) -> None:
        self.actions, self.labels = model.actions, model.labels
        self.embedding = store.table("embedding")
        self.ends = [*store.vectors("end"), *store.vectors("bottom")]
        self.buffer = [store.vectors("b_buffer")[0], *store.matrices("W_buffer")]
        self.buffer += store.matrices("U_buffer")
        self.cells = [
            [*store.vectors(f"b_{name}"), *store.matrices(f"W_{name}", 2, axis=0)]
            for name in ("push", "compose", "decide")
        ]
        self.classifier = store.matrices("W_out")[0]

    def read(self, chain: Chain) -> Sentence:
        """A sentence as a DyNet program holds it: lists of Python numbers."""
        return chain.words.tolist(), self.actions(chain), self.labels(chain)

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Part]:
        """Actions of all parsers, a step a round; then the scores of all of them."""
        self._ends = [p.expr(True) for p in self.ends]
        self._reading = [p.expr(True) for p in self.buffer]
        self._cells = [[p.expr(True) for p in cell] for cell in self.cells]
        programs = (self._parse(words, actions) for words, actions, _ in sentences)
        states = yield from together(programs)
        labels = [label for *_, own in sentences for label in own]
        yield classified(self.classifier, [state for own in states for state in own], labels)

    def _parse(self, words: Sequence[int], actions: Sequence[bool]) -> Program[list[Any]]:
        """What every decision is made from."""
        push, compose, decide = self._cells
        end, bottom = self._ends
        buffer, stack = self._buffer(words, end), [bottom]
        stack.append(_of_two(push, buffer.pop(), bottom))
        states = [_of_two(decide, stack[-1], buffer[-1])]
        for shifts in actions:
            yield states[-1]
            if shifts:
                pushed = buffer.pop()
            else:
                upper = stack.pop()
                pushed = _of_two(compose, stack.pop(), upper)
            stack.append(_of_two(push, pushed, stack[-1]))
            states.append(_of_two(decide, stack[-1], buffer[-1]))
        return states

    def _buffer(self, words: Sequence[int], end: Any) -> list[Any]:
        """States behind every word, read from the last to the first, which comes last."""
        affine, tanh, lookup, table = dy.affine_transform, dy.tanh, dy.lookup, self.embedding
        b, W, U = self._reading
        states = [end]
        for word in reversed(words):
            states.append(tanh(affine([b, W, lookup(table, word), U, states[-1]])))
        return states


def _of_two(cell: Sequence[Any], first: Any, second: Any) -> Any:
    b, W_first, W_second = cell
    return dy.tanh(dy.affine_transform([b, W_first, first, W_second, second]))


NETWORKS = {"stack_rnn": Network}
