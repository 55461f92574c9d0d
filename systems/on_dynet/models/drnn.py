"""DRNN in DyNet: breadth first, so that what grows side by side is there before it is evaluated.

This is what ACRoBat's authors added to DyNet by hand (MLSys 2024, Table 8): a program that recurses
waits for every node by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.drnn import DRNN, Place
from harness.values.instances import Chain
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Node = tuple[int, int]  # its parent, and the sibling before it (-1: none), by place in the rounds
Instance = tuple[int, int, list[list[Node]]]  # word, label, nodes below the root round by round


class Network:
    """Equations of harness.models.drnn.

    The gate of a node is one number for all elements, which DyNet multiplies without batching; a
    product with a column of ones makes a vector of it, and both products batch.
    """

    def __init__(self, model: DRNN, store: ParameterStore) -> None:
        self.model, self.embedding = model, store.table("embedding")
        self.cell = [*store.vectors("b"), *store.matrices("U_a"), *store.matrices("U_f")]
        self.gate, self.scores = store.matrices("u")[0], store.matrices("W_out")[0]

    def read(self, sentence: Chain) -> Instance:
        """A number for the input, the label, and the tree that will grow."""
        rounds: list[list[Node]] = []
        frontier = [(Place(), -1, 0)]  # places, their parents and their own numbers
        n = 1
        while frontier:
            nodes, grown = [], []
            for place, parent, number in frontier:
                has_child, has_next = self.model.decides(sentence, place)
                for has, below, of, before in (
                    (has_child, place.child, number, -1),
                    (has_next, place.next, parent, number),
                ):
                    if has:
                        nodes.append((of, before))
                        grown.append((below, of, n))
                        n += 1
            rounds.append(nodes)
            frontier = grown
        return int(sentence.words[0]), int(sentence.labels[0]), rounds[:-1]

    def build(self, instances: Sequence[Instance]) -> Iterator[Round]:
        """The roots; then, round by round, all nodes whose parents and siblings are decided."""
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        pick = dy.pickneglogsoftmax
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        b, U_a, U_f = (p.expr(True) for p in self.cell)
        u, W_out = self.gate.expr(True), self.scores.expr(True)
        ones = dy.ones((self.model.sizes.hidden_size, 1))
        states = [[dy.lookup(self.embedding, word)] for word, *_ in instances]
        roots = [W_out * of[0] for of in states]
        labels = [label for _, label, _ in instances]
        yield Round(dy.esum(list(map(pick, roots, labels))), roots)
        for step in range(max(len(rounds) for *_, rounds in instances)):
            losses: list[Any] = []
            scores: list[Any] = [None] * len(instances)
            for i, (_, label, rounds) in enumerate(instances):
                if step >= len(rounds):
                    continue
                of, found = states[i], []
                for parent, before in rounds[step]:
                    if before < 0:
                        h = tanh(affine([b, U_a, of[parent]]))
                    else:
                        h = tanh(affine([b, U_a, of[parent], U_f, of[before]]))
                    of.append(cmult(h, ones * logistic(u * h)))
                    found.append(W_out * of[-1])
                    losses.append(pick(found[-1], label))
                scores[i] = found
            yield Round(dy.esum(losses), scores)
