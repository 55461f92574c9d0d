"""Lattice-LSTM in DyNet, written for one lattice; DyNet batches across lattices and arcs."""

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
    """Equations of harness.models.lattice_lstm, with one affine transform for every gate."""

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.tables = store.table("characters"), store.table("words")
        self.start = [*store.vectors("h_0"), *store.vectors("c_0")]
        self.cells = [
            [
                *store.vectors(f"b_{arc}", 4),
                *store.matrices(f"W_{arc}", 4),
                *store.matrices(f"U_{arc}", 4),
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
        h_0, c_0 = (p.expr(True) for p in self.start)
        char, word = ([p.expr(True) for p in cell] for cell in self.cells)

        def step(weights: list[Any], x: Any, h: Any, c: Any) -> tuple[Any, Any]:
            b_f, b_i, b_o, b_g, W_f, W_i, W_o, W_g, U_f, U_i, U_o, U_g = weights
            f = logistic(affine([b_f, W_f, x, U_f, h]))
            i = logistic(affine([b_i, W_i, x, U_i, h]))
            o = logistic(affine([b_o, W_o, x, U_o, h]))
            new = cmult(i, tanh(affine([b_g, W_g, x, U_g, h]))) + cmult(f, c)
            return cmult(o, tanh(new)), new

        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            c: list[Any] = [c_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                h_v, c_v = step(char, lookup(characters, character), h[-1], c[-1])
                if arcs:
                    cells = [
                        step(word, lookup(words, token), h[source], c[source])
                        for source, token in arcs
                    ]
                    h_v = esum([h_v, *(cell[0] for cell in cells)])
                    c_v = esum([c_v, *(cell[1] for cell in cells)])
                h.append(h_v)
                c.append(c_v)
                labels.append(tag)
            hidden += h
        W_out = self.classifier.expr(True)
        logits = [W_out * h_v for h_v in hidden]
        yield Round(esum(list(map(dy.pickneglogsoftmax, logits, labels))), logits)
