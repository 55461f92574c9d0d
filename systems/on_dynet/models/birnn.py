"""BiRNN in DyNet, written for one sentence; DyNet batches across sentences."""

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
    """Equations of harness.models.birnn; the layer at every word once, over all of a mini-batch.

    Measured on a busy machine, processor time of a mini-batch of 64, hidden 256, by agenda and by
    depth: this one 9.6 and 10.7 ms; W x + b apart, which batches over all words, 10.3 and 11.7; the
    layer called at every word besides, 11.0 and 11.8 (beside 9.4 and 9.9 of this one then).
    """

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
        lookup, table = dy.lookup, self.embedding
        forward, backward = ([p.expr(True) for p in cell] for cell in self.cells)
        along: list[Any] = []
        against: list[Any] = []
        labels: list[int] = []
        for words, of_sentence in sentences:
            vectors = [lookup(table, word) for word in words]
            along += _states(forward, vectors)
            against += reversed(_states(backward, vectors[::-1]))
            labels += of_sentence
        b, W_forward, W_backward = (p.expr(True) for p in self.token)
        h_f, h_b = dy.concatenate_to_batch(along), dy.concatenate_to_batch(against)
        scores = dy.rectify(dy.affine_transform([b, W_forward, h_f, W_backward, h_b]))
        yield Round(dy.sum_batches(dy.pickneglogsoftmax_batch(scores, labels)), [scores])


def _states(cell: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
    """Of every word, in the order in which they are read."""
    affine, logistic = dy.affine_transform, dy.logistic
    b, W, U = cell
    states = [logistic(affine([b, W, vectors[0]]))]
    for x in vectors[1:]:
        states.append(logistic(affine([b, W, x, U, states[-1]])))
    return states


NETWORKS = {"birnn": Network}
