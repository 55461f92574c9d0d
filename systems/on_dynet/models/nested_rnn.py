"""NestedRNN in DyNet, written for one instance; all take a step of the outer loop a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.nested_rnn import NestedRNN
from harness.values.instances import Chain
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Instance = tuple[int, int, list[int]]  # word, label, lengths of the inner loops


class Network:
    """Equations of harness.models.nested_rnn, every gate by itself.

    Nobody waits for the first state, which is a row of a table: a round less than the program has.
    """

    def __init__(self, model: NestedRNN, store: ParameterStore) -> None:
        self.model, self.embedding = model, store.table("embedding")
        self.inner = [*store.vectors("b"), *store.matrices("U")]
        self.biases, self.of_x = store.vectors("b_gates", 3), store.matrices("W_x", 3)
        self.of_h = [*store.matrices("W_h", 2), *store.matrices("U_n")]
        self.scores = store.matrices("W_out")[0]

    def read(self, sentence: Chain) -> Instance:
        """A number for the input, the label, and how often each inner loop will run."""
        word, label = int(sentence.words[0]), int(sentence.labels[0])
        return word, label, self.model.loops(sentence)

    def build(self, instances: Sequence[Instance]) -> Iterator[Round]:
        """An outer step of every instance that goes on, its inner loop before it."""
        affine, tanh, logistic, cmult = dy.affine_transform, dy.tanh, dy.logistic, dy.cmult
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        b, U = (p.expr(True) for p in self.inner)
        b_r, b_z, b_n = (p.expr(True) for p in self.biases)
        W_r, W_z, W_n = (p.expr(True) for p in self.of_x)
        U_r, U_z, U_n = (p.expr(True) for p in self.of_h)
        W_out = self.scores.expr(True)
        states = [dy.lookup(self.embedding, word) for word, *_ in instances]
        for step in range(max(len(loops) for *_, loops in instances)):
            losses: list[Any] = []
            scores: list[Any] = [None] * len(instances)
            for i, (_, label, loops) in enumerate(instances):
                if step >= len(loops):
                    continue
                h = x = states[i]
                for _ in range(loops[step]):
                    x = tanh(affine([b, U, x]))
                r = logistic(affine([b_r, W_r, x, U_r, h]))
                z = logistic(affine([b_z, W_z, x, U_z, h]))
                n = tanh(affine([b_n, W_n, x, U_n, cmult(r, h)]))
                states[i] = n + cmult(z, h - n)
                scores[i] = W_out * states[i]
                losses.append(dy.pickneglogsoftmax(scores[i], label))
            yield Round(dy.esum(losses), scores)
