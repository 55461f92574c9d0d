"""Lattice-LSTM in DyNet, written for one lattice; DyNet batches across lattices and arcs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dynet as dy

from harness.contracts.model import Model
from harness.values.instances import Lattice
from systems.on_dynet.classifier import classified
from systems.on_dynet.lstm_cells import MOST_FUSED, FusedGates, HoistedGates
from systems.on_dynet.models.lattice_states import State, states_of
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

GATES = "fiog"
Step = Callable[[Any, Any, Any], tuple[Any, Any]]


class Network:
    """Equations of harness.models.lattice_lstm.

    Measured (source build, agenda, batch 64 of weibo_lattice, best pass, lattices/s in training at
    hidden 64, 128 and 256, and in inference at 64 and 256):
    all gates by DyNet's operator for them: 2030, 1130, 325; 4070, 1010;
    every gate by itself, W x apart: 970, 760, 402; 1570, 890;
    every gate in an affine transform: 1260, 870, 381; 2060, 970;
    that with the classifier for every state, too: 1230, not measured, 354 to 378; 1830, 930;
    one affine transform of all gates and pick_range: 1400, not measured, 287; 2250, 830;
    that with W x apart, training at 64 and 256: 1180 and 334;
    DyNet's own LSTM, its states set, training at 64 and 256: 1310 and 254.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.tables = store.table("characters"), store.table("words")
        self.start = [*store.vectors("h_0"), *store.vectors("c_0")]
        self.width = model.sizes.hidden_size
        cell = _FusedCell if self.width <= MOST_FUSED else _HoistedCell
        self.cells = [cell(store, arc, self.width) for arc in ("char", "word")]
        self.classifier = store.matrices("W_out")[0]

    def read(self, lattice: Lattice) -> list[State]:
        """A lattice as a DyNet program holds it: Python numbers, states in order."""
        return states_of(lattice)

    def build(self, lattices: Sequence[list[State]]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every state."""
        lookup, esum = dy.lookup, dy.esum
        characters, words = self.tables
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        h_0, c_0 = (p.expr(True) for p in self.start)
        char, word = (cell.begin() for cell in self.cells)
        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            c: list[Any] = [c_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                h_v, c_v = char(lookup(characters, character), h[-1], c[-1])
                if arcs:
                    cells = [
                        word(lookup(words, token), h[source], c[source]) for source, token in arcs
                    ]
                    h_v = esum([h_v, *(cell[0] for cell in cells)])
                    c_v = esum([c_v, *(cell[1] for cell in cells)])
                h.append(h_v)
                c.append(c_v)
                labels.append(tag)
            hidden += h
        yield classified(self.classifier, hidden, labels)


class _FusedCell:
    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        self.gates = FusedGates(store, f"_{arc}", GATES)
        self.width = width

    def begin(self) -> Step:
        """A step in a new graph; names are local, since look-ups would cost much of its time."""
        W, U, b = self.gates.begin()
        start, end = 2 * self.width, 3 * self.width
        gates_of, cell_of, pick = dy.vanilla_lstm_gates, dy.vanilla_lstm_c, dy.pick_range
        cmult, tanh = dy.cmult, dy.tanh

        def step(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
            # vanilla_lstm_h has the signature of vanilla_lstm_c: DyNet may batch them together.
            gates = gates_of(x, h, W, U, b)
            new = cell_of(c, gates)
            return cmult(pick(gates, start, end), tanh(new)), new

        return step


class _HoistedCell:
    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        self.gates = HoistedGates(store, f"_{arc}", len(GATES))

    def begin(self) -> Step:
        self.gates.begin()
        return self.step

    def step(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gates, logistic, tanh, cmult = self.gates, dy.logistic, dy.tanh, dy.cmult
        f, i, o = (logistic(gates(k, x, h)) for k in range(3))
        new = cmult(i, tanh(gates(3, x, h))) + cmult(f, c)
        return cmult(o, tanh(new)), new


NETWORKS = {"lattice_lstm": Network}
