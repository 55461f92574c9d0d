"""BiRNN in DyNet, written for one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.birnn import BiRNN
from harness.values.instances import Chain
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Sentence = tuple[list[int], list[int]]  # words, labels


class Network:
    """Equations of harness.models.birnn, W x + b apart from U h, so that it batches over words."""

    def __init__(self, model: BiRNN, store: ParameterStore) -> None:
        self.embedding = store.table("embedding")
        self.cells = [
            [*store.vectors(f"b_{d}"), *store.matrices(f"W_{d}"), *store.matrices(f"U_{d}")]
            for d in model.copies["cell"]
        ]
        self.token = [*store.vectors("b_token"), *store.matrices("W_token", 2, axis=0)]

    def read(self, chain: Chain) -> Sentence:
        """A sentence as a DyNet program holds it: lists of Python numbers."""
        return chain.words.tolist(), chain.labels.tolist()

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Round]:
        """Expressions of the summed loss and of the scores of every word."""
        affine, lookup, table = dy.affine_transform, dy.lookup, self.embedding
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        forward, backward = ([p.expr(True) for p in cell] for cell in self.cells)
        b, W_forward, W_backward = (p.expr(True) for p in self.token)
        scores: list[Any] = []
        losses: list[Any] = []
        for words, labels in sentences:
            vectors = [lookup(table, word) for word in words]
            there, back = _pass(forward, vectors), _pass(backward, vectors[::-1])
            for h_f, h_b, label in zip(there, reversed(back), labels, strict=True):
                scores.append(dy.rectify(affine([b, W_forward, h_f, W_backward, h_b])))
                losses.append(dy.pickneglogsoftmax(scores[-1], label))
        yield Round(dy.esum(losses), scores)


def _pass(cell: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
    """States along the vectors, from one of zeros."""
    affine, logistic = dy.affine_transform, dy.logistic
    b, W, U = cell
    inputs = [affine([b, W, x]) for x in vectors]
    states = [logistic(inputs[0])]
    for x in inputs[1:]:
        states.append(logistic(x + U * states[-1]))
    return states
