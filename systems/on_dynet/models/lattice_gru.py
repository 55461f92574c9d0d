"""Lattice-GRU in DyNet, written for one lattice; DyNet batches across lattices and arcs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.contracts.model import Model
from harness.values.instances import Lattice
from systems.on_dynet.classifier import classified
from systems.on_dynet.lstm_cells import MOST_FUSED
from systems.on_dynet.models.lattice_states import State, states_of
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore


class Network:
    """Equations of harness.models.lattice_gru, r and z together.

    z h + (1 - z) n is written n + z (h - n), since DyNet has no batched kernel of 1 - z. Measured
    (source build, agenda, batch 64 of weibo_lattice, training, best pass, lattices/s at hidden 64
    and 256): r and z in one affine transform 1680 and 481; W x apart, for r, z and n together, 1310
    and 537; every gate by itself 1490 and 508, with W x apart 1280 and 512, with the classifier for
    every state 1400 and 456.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        self.tables = store.table("characters"), store.table("words")
        self.start = store.vectors("h_0")[0]
        store.vectors("c_0")  # which nothing reads
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
        h_0 = self.start.expr(True)
        for cell in self.cells:
            cell.begin()
        char, word = (cell.step for cell in self.cells)
        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                h_v = char(lookup(characters, character), h[-1])
                if arcs:
                    h_v = esum([h_v, *(word(lookup(words, w), h[source]) for source, w in arcs)])
                h.append(h_v)
                labels.append(tag)
            hidden += h
        yield classified(self.classifier, hidden, labels)


class _Cell:
    """What an arc computes from the input x and the state h at its source.

    parameters: b and W by gates that are computed together, then U of r and z, and U of n.
    """

    def __init__(self, parameters: Sequence[Any], width: int) -> None:
        self.parameters, self.width = parameters, width

    def begin(self) -> None:
        self.weights = [p.expr(True) for p in self.parameters]


class _FusedCell(_Cell):
    """r and z of one affine transform, n of another."""

    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        inputs = (*store.split(f"b_{arc}", 2 * width), *store.split(f"W_{arc}", 2 * width))
        super().__init__([*inputs, *_recurrent(store, arc)], width)

    def step(self, x: Any, h: Any) -> Any:
        affine = dy.affine_transform
        b, b_n, W, W_n, U, U_n = self.weights
        r, z = _r_and_z(dy.logistic(affine([b, W, x, U, h])), self.width)
        n = dy.tanh(affine([b_n, W_n, x, U_n, dy.cmult(r, h)]))
        return n + dy.cmult(z, h - n)


class _HoistedCell(_Cell):
    """W x + b of all three apart: DyNet batches it over all inputs beforehand."""

    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        inputs = (*store.vectors(f"b_{arc}"), *store.matrices(f"W_{arc}"))
        super().__init__([*inputs, *_recurrent(store, arc)], width)

    def step(self, x: Any, h: Any) -> Any:
        width = self.width
        b, W, U, U_n = self.weights
        inputs = dy.affine_transform([b, W, x])
        r, z = _r_and_z(dy.logistic(dy.pick_range(inputs, 0, 2 * width) + U * h), width)
        n = dy.tanh(dy.pick_range(inputs, 2 * width, 3 * width) + U_n * dy.cmult(r, h))
        return n + dy.cmult(z, h - n)


def _recurrent(store: ParameterStore, arc: str) -> list[Any]:
    return [*store.matrices(f"U_{arc}"), *store.matrices(f"U_n_{arc}")]


def _r_and_z(gates: Any, width: int) -> tuple[Any, Any]:
    return dy.pick_range(gates, 0, width), dy.pick_range(gates, width, 2 * width)


NETWORKS = {"lattice_gru": Network}
