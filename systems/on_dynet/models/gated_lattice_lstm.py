"""Lattice-LSTM with gates in DyNet, written for one lattice; DyNet batches across all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.contracts.model import Model
from harness.values.instances import Lattice
from systems.on_dynet.classifier import classified
from systems.on_dynet.lstm_cells import MOST_FUSED, FusedGates, HoistedGates
from systems.on_dynet.models.lattice_states import State, states_of
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Pair = tuple[Any, Any]


class Network:
    """Equations of harness.models.gated_lattice_lstm.

    A quotient p / q of positive q is written p exp(-log q), since DyNet has no batched kernel of
    quotients. Measured (source build, agenda, batch 64 of weibo_lattice, training, best pass,
    lattices/s at hidden 64 and 256): gates by DyNet's operator for them 1620 and 232; every gate by
    itself, W x apart, 1010 and 403; every gate in an affine transform 1290 and 296, with the
    classifier for every state 1230 and 266; one affine transform of all gates and pick_range 1310
    and 308.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.tables = store.table("characters"), store.table("words")
        self.start = [*store.vectors("h_0"), *store.vectors("c_0")]
        width = model.sizes.hidden_size
        self.cells = (_FusedCells if width <= MOST_FUSED else _HoistedCells)(store, width)
        self.classifier = store.matrices("W_out")[0]

    def read(self, lattice: Lattice) -> list[State]:
        """A lattice as a DyNet program holds it: Python numbers, states in order."""
        return states_of(lattice)

    def build(self, lattices: Sequence[list[State]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every state."""
        tanh, cmult, lookup, cells = dy.tanh, dy.cmult, dy.lookup, self.cells
        characters, words = self.tables
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        h_0, c_0 = (p.expr(True) for p in self.start)
        cells.begin()
        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            c: list[Any] = [c_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                x = lookup(characters, character)
                if arcs:
                    of_words = [cells.word(lookup(words, w), h[k], c[k]) for k, w in arcs]
                    o, c_v = cells.gated(x, h[-1], of_words)
                else:
                    o, c_v = cells.char(x, h[-1], c[-1])
                h.append(cmult(o, tanh(c_v)))
                c.append(c_v)
                labels.append(tag)
            hidden += h
        yield classified(self.classifier, hidden, labels)


def _weighted(own: Any, g: Any, gates: Sequence[Any], cells: Sequence[Any]) -> Any:
    """Mean of g and of words' cells, weighted by exponentials of their gates."""
    exp, cmult, esum = dy.exp, dy.cmult, dy.esum
    weights = [exp(gate) for gate in (own, *gates)]
    total = esum(weights)
    return cmult(esum(list(map(cmult, weights, (g, *cells)))), exp(-dy.log(total)))


class _FusedCells:
    """Gates of a character, and of a word, in one operator."""

    def __init__(self, store: ParameterStore, width: int) -> None:
        self.of_char = FusedGates(store, "_char", "iofg")
        self.of_word = FusedGates(store, "_word", "ifg")
        self.gate = [store.vectors("b_gate"), store.matrices("W_gate"), store.matrices("U_gate")]
        self.width = width

    def begin(self) -> None:
        self.of_char.begin()
        self.of_word.begin()
        self.weights = [p.expr(True) for (p,) in self.gate]

    def word(self, x: Any, h: Any, c: Any) -> Any:
        return dy.vanilla_lstm_c(c, self.of_word(x, h))

    def char(self, x: Any, h: Any, c: Any) -> Pair:
        gates = self.of_char(x, h)
        return self._o(gates), dy.vanilla_lstm_c(c, gates)

    def gated(self, x: Any, h: Any, cells: Sequence[Any]) -> Pair:
        gates, width = self.of_char(x, h), self.width
        b, W, U = self.weights
        of_cells = [dy.logistic(dy.affine_transform([b, W, x, U, cell])) for cell in cells]
        i, g = dy.pick_range(gates, 0, width), dy.pick_range(gates, 3 * width, 4 * width)
        return self._o(gates), _weighted(i, g, of_cells, cells)

    def _o(self, gates: Any) -> Any:
        return dy.pick_range(gates, 2 * self.width, 3 * self.width)


class _HoistedCells:
    """Every gate by itself, W x apart."""

    def __init__(self, store: ParameterStore, width: int) -> None:
        self.of_char = HoistedGates(store, "_char", 4)  # i, o, f, g
        self.of_word = HoistedGates(store, "_word", 3)  # i, f, g
        self.gate = HoistedGates(store, "_gate", 1)

    def begin(self) -> None:
        for gates in (self.of_char, self.of_word, self.gate):
            gates.begin()

    def word(self, x: Any, h: Any, c: Any) -> Any:
        gates, logistic, cmult = self.of_word, dy.logistic, dy.cmult
        i, f = logistic(gates(0, x, h)), logistic(gates(1, x, h))
        return cmult(f, c) + cmult(i, dy.tanh(gates(2, x, h)))

    def char(self, x: Any, h: Any, c: Any) -> Pair:
        i, o, g = self._char_gates(x, h)
        f = dy.logistic(self.of_char(2, x, h))
        return o, dy.cmult(f, c) + dy.cmult(i, g)

    def gated(self, x: Any, h: Any, cells: Sequence[Any]) -> Pair:
        i, o, g = self._char_gates(x, h)
        own = self.gate.inputs(0, x)
        of_cells = [dy.logistic(own + self.gate.states(0, cell)) for cell in cells]
        return o, _weighted(i, g, of_cells, cells)

    def _char_gates(self, x: Any, h: Any) -> tuple[Any, Any, Any]:
        gates, logistic = self.of_char, dy.logistic
        return logistic(gates(0, x, h)), logistic(gates(1, x, h)), dy.tanh(gates(3, x, h))


NETWORKS = {"gated_lattice_lstm": Network}
