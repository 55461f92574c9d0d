"""Lattice-LSTM with gates in DyNet, written for one lattice; DyNet batches across all of them."""

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
    """Equations of harness.models.gated_lattice_lstm, with one affine transform for every gate.

    A quotient p / q of positive q is written p exp(-log q), since DyNet has no batched kernel of
    quotients.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.tables = store.table("characters"), store.table("words")
        self.start = [*store.vectors("h_0"), *store.vectors("c_0")]
        self.char, self.word, self.gate = (
            [
                *store.vectors(f"b_{cell}", n),
                *store.matrices(f"W_{cell}", n),
                *store.matrices(f"U_{cell}", n),
            ]
            for cell, n in (("char", 4), ("word", 3), ("gate", 1))
        )
        self.classifier = store.matrices("W_out")[0]

    def read(self, lattice: Lattice) -> list[State]:
        """A lattice as a DyNet program holds it: Python numbers, states in order."""
        return states_of(lattice)

    def build(self, lattices: Sequence[list[State]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every state."""
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        exp, log, lookup, esum = dy.exp, dy.log, dy.lookup, dy.esum
        characters, words = self.tables
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        h_0, c_0 = (p.expr(True) for p in self.start)
        b_i, b_o, b_f, b_g, W_i, W_o, W_f, W_g, U_i, U_o, U_f, U_g = (
            p.expr(True) for p in self.char
        )
        bw_i, bw_f, bw_g, Ww_i, Ww_f, Ww_g, Uw_i, Uw_f, Uw_g = (p.expr(True) for p in self.word)
        b_l, W_l, U_l = (p.expr(True) for p in self.gate)

        def cell(x: Any, h: Any, c: Any) -> Any:
            f = logistic(affine([bw_f, Ww_f, x, Uw_f, h]))
            i = logistic(affine([bw_i, Ww_i, x, Uw_i, h]))
            return cmult(f, c) + cmult(i, tanh(affine([bw_g, Ww_g, x, Uw_g, h])))

        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            c: list[Any] = [c_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                x, before = lookup(characters, character), h[-1]
                i = logistic(affine([b_i, W_i, x, U_i, before]))
                g = tanh(affine([b_g, W_g, x, U_g, before]))
                if arcs:
                    cells = [cell(lookup(words, w), h[k], c[k]) for k, w in arcs]
                    gates = [exp(logistic(affine([b_l, W_l, x, U_l, c_w]))) for c_w in cells]
                    own = exp(i)
                    total = esum([own, *gates])
                    weighted = esum([cmult(own, g), *map(cmult, gates, cells)])
                    c_v = cmult(weighted, exp(-log(total)))
                else:
                    f = logistic(affine([b_f, W_f, x, U_f, before]))
                    c_v = cmult(f, c[-1]) + cmult(i, g)
                h.append(cmult(logistic(affine([b_o, W_o, x, U_o, before])), tanh(c_v)))
                c.append(c_v)
                labels.append(tag)
            hidden += h
        W_out = self.classifier.expr(True)
        logits = [W_out * h_v for h_v in hidden]
        yield Round(esum(list(map(dy.pickneglogsoftmax, logits, labels))), logits)
