"""Lattice-GRU in DyNet, written for one lattice; DyNet batches across lattices and arcs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.contracts.model import Model
from harness.values.instances import Lattice
from systems.on_dynet.models.lattice_states import State, states_of
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore


class Network:
    """Equations of harness.models.lattice_gru, with one affine transform for every gate.

    z h + (1 - z) n is written n + z (h - n), since DyNet has no batched kernel of 1 - z.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.tables = store.table("characters"), store.table("words")
        self.start = store.vectors("h_0")[0]
        store.vectors("c_0")  # which nothing reads
        self.cells = [
            [
                *store.vectors(f"b_{arc}", 3),
                *store.matrices(f"W_{arc}", 3),
                *store.matrices(f"U_{arc}", 2),
                *store.matrices(f"U_n_{arc}"),
            ]
            for arc in ("char", "word")
        ]
        self.classifier = store.matrices("W_out")[0]

    def read(self, lattice: Lattice) -> list[State]:
        """A lattice as a DyNet program holds it: Python numbers, states in order."""
        return states_of(lattice)

    def build(self, lattices: Sequence[list[State]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every state."""
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        lookup, esum = dy.lookup, dy.esum
        characters, words = self.tables
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        h_0 = self.start.expr(True)
        char, word = ([p.expr(True) for p in cell] for cell in self.cells)

        def step(weights: list[Any], x: Any, h: Any) -> Any:
            b_r, b_z, b_n, W_r, W_z, W_n, U_r, U_z, U_n = weights
            r = logistic(affine([b_r, W_r, x, U_r, h]))
            z = logistic(affine([b_z, W_z, x, U_z, h]))
            n = tanh(affine([b_n, W_n, x, U_n, cmult(r, h)]))
            return n + cmult(z, h - n)

        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                h_v = step(char, lookup(characters, character), h[-1])
                if arcs:
                    steps = [step(word, lookup(words, token), h[source]) for source, token in arcs]
                    h_v = esum([h_v, *steps])
                h.append(h_v)
                labels.append(tag)
            hidden += h
        W_out = self.classifier.expr(True)
        logits = [W_out * h_v for h_v in hidden]
        yield Round(esum(list(map(dy.pickneglogsoftmax, logits, labels))), logits)
