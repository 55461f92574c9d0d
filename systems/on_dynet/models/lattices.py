"""Lattice models in DyNet, written for one lattice; DyNet batches across lattices and arcs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import dynet as dy

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Lattice
from dynbatch.systems.on_dynet.layers import (
    FusedGates,
    HoistedGates,
    add_to_graph,
    classify_states,
)
from dynbatch.systems.on_dynet.lstm_gates import MAX_FUSED
from dynbatch.systems.on_dynet.runtime import ParameterStore
from dynbatch.systems.on_dynet.segments import GraphSegment

GATES = "fiog"
Step = Callable[[Any, Any, Any], tuple[Any, Any]]
Pair = tuple[Any, Any]


# Tag, character (-1 at the start), and the words that end here: the source and the id of each.
State = tuple[int, int, list[tuple[int, int]]]


class Lattices:
    """Lattices as Python values, the vectors of their arcs, and the classifier."""

    def __init__(self, store: ParameterStore) -> None:
        self.tables = store.add_table("characters"), store.add_table("words")
        self.classifier = store.add_matrices("W_out")[0]

    def read(self, lattice: Lattice) -> list[State]:
        """Return every state of a lattice in order, as Python numbers."""
        starts, tokens = lattice.arc_start.tolist(), lattice.tokens.tolist()
        arcs = list(zip(lattice.sources.tolist(), tokens, strict=True))
        own = list(pairwise(starts))
        characters = [tokens[a] if a < b else -1 for a, b in own]
        word_arcs = [arcs[a + 1 : b] for a, b in own]
        return list(zip(lattice.tags.tolist(), characters, word_arcs, strict=True))


class LatticeLSTM(Lattices):
    """Equations of dynbatch.harness.models.lattice_lstm.

    Up to MAX_FUSED, DyNet's operator for all gates is faster; for larger sizes, separate gates
    with W x as an operator of its own are faster.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        super().__init__(store)
        self.start = [*store.add_vectors("h_0"), *store.add_vectors("c_0")]
        self.width = model.sizes.hidden_size
        cell = _FusedLSTM if self.width <= MAX_FUSED else _HoistedLSTM
        self.cells = [cell(store, arc, self.width) for arc in ("char", "word")]

    def build(self, lattices: Sequence[list[State]]) -> Iterator[GraphSegment]:
        """Yield expressions of the summed loss and of the logits of every state."""
        lookup, esum = dy.lookup, dy.esum
        character_table, word_table = self.tables
        h_0, c_0 = add_to_graph(self.start)
        char, word = (cell.begin() for cell in self.cells)
        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            c: list[Any] = [c_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                h_v, c_v = char(lookup(character_table, character), h[-1], c[-1])
                if arcs:
                    cells = [
                        word(lookup(word_table, token), h[source], c[source])
                        for source, token in arcs
                    ]
                    h_v = esum([h_v, *(cell[0] for cell in cells)])
                    c_v = esum([c_v, *(cell[1] for cell in cells)])
                h.append(h_v)
                c.append(c_v)
                labels.append(tag)
            hidden += h
        yield classify_states(self.classifier, hidden, labels)


class _FusedLSTM:
    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        self.gates = FusedGates(store, f"_{arc}", GATES)
        self.width = width

    def begin(self) -> Step:
        """Return a step function for a new graph; local names avoid the cost of lookups."""
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


class _HoistedLSTM:
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


class LatticeGRU(Lattices):
    """Equations of dynbatch.harness.models.lattice_gru, r and z together.

    z h + (1 - z) n is written n + z (h - n), because DyNet has no batched kernel of 1 - z. Other
    forms are slower.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        super().__init__(store)
        self.start = store.add_vectors("h_0")[0]
        store.add_vectors("c_0")  # unused parameter
        self.width = model.sizes.hidden_size
        cell = _FusedGRU if self.width <= MAX_FUSED else _HoistedGRU
        self.cells = [cell(store, arc, self.width) for arc in ("char", "word")]

    def build(self, lattices: Sequence[list[State]]) -> Iterator[GraphSegment]:
        lookup, esum = dy.lookup, dy.esum
        character_table, word_table = self.tables
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
                h_v = char(lookup(character_table, character), h[-1])
                if arcs:
                    h_v = esum(
                        [h_v, *(word(lookup(word_table, w), h[source]) for source, w in arcs)]
                    )
                h.append(h_v)
                labels.append(tag)
            hidden += h
        yield classify_states(self.classifier, hidden, labels)


class _GRUCell:
    """GRU of an arc, from the input x and the state h at its source.

    Args:
        parameters: b and W, grouped by gates that are computed together, then U of r and z, and U
            of n.
        width: hidden size.
    """

    def __init__(self, parameters: Sequence[Any], width: int) -> None:
        self.parameters, self.width = parameters, width

    def begin(self) -> None:
        self.weights = add_to_graph(self.parameters)


class _FusedGRU(_GRUCell):
    """GRU with one affine transform for r and z, and another one for n."""

    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        inputs = (
            *store.add_pieces(f"b_{arc}", 2 * width),
            *store.add_pieces(f"W_{arc}", 2 * width),
        )
        super().__init__([*inputs, *_build_recurrent_weights(store, arc)], width)

    def step(self, x: Any, h: Any) -> Any:
        affine = dy.affine_transform
        b, b_n, W, W_n, U, U_n = self.weights
        r, z = _split_gates(dy.logistic(affine([b, W, x, U, h])), self.width)
        n = dy.tanh(affine([b_n, W_n, x, U_n, dy.cmult(r, h)]))
        return n + dy.cmult(z, h - n)


class _HoistedGRU(_GRUCell):
    """GRU that separates W x + b of all gates: DyNet batches it over all inputs in advance."""

    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        inputs = (*store.add_vectors(f"b_{arc}"), *store.add_matrices(f"W_{arc}"))
        super().__init__([*inputs, *_build_recurrent_weights(store, arc)], width)

    def step(self, x: Any, h: Any) -> Any:
        width = self.width
        b, W, U, U_n = self.weights
        inputs = dy.affine_transform([b, W, x])
        r, z = _split_gates(dy.logistic(dy.pick_range(inputs, 0, 2 * width) + U * h), width)
        n = dy.tanh(dy.pick_range(inputs, 2 * width, 3 * width) + U_n * dy.cmult(r, h))
        return n + dy.cmult(z, h - n)


def _build_recurrent_weights(store: ParameterStore, arc: str) -> list[Any]:
    return [*store.add_matrices(f"U_{arc}"), *store.add_matrices(f"U_n_{arc}")]


def _split_gates(gates: Any, width: int) -> tuple[Any, Any]:
    return dy.pick_range(gates, 0, width), dy.pick_range(gates, width, 2 * width)


class GatedLatticeLSTM(Lattices):
    """Equations of dynbatch.harness.models.gated_lattice_lstm.

    A quotient p / q of positive q is written p exp(-log q), because DyNet has no batched kernel of
    quotients. Up to MAX_FUSED, DyNet's operator for gates is faster; for larger sizes, separate
    gates with W x as an operator of its own are faster.
    """

    def __init__(self, model: Model, store: ParameterStore) -> None:
        super().__init__(store)
        self.start = [*store.add_vectors("h_0"), *store.add_vectors("c_0")]
        width = model.sizes.hidden_size
        self.cells = (_FusedGated if width <= MAX_FUSED else _HoistedGated)(store, width)

    def build(self, lattices: Sequence[list[State]]) -> Iterator[GraphSegment]:
        tanh, cmult, lookup, cells = dy.tanh, dy.cmult, dy.lookup, self.cells
        character_table, word_table = self.tables
        h_0, c_0 = add_to_graph(self.start)
        cells.begin()
        hidden: list[Any] = []
        labels: list[int] = []
        for states in lattices:
            h: list[Any] = [h_0]
            c: list[Any] = [c_0]
            labels.append(states[0][0])
            for tag, character, arcs in states[1:]:
                x = lookup(character_table, character)
                if arcs:
                    of_words = [cells.step_word(lookup(word_table, w), h[k], c[k]) for k, w in arcs]
                    o, c_v = cells.step_gated(x, h[-1], of_words)
                else:
                    o, c_v = cells.step_char(x, h[-1], c[-1])
                h.append(cmult(o, tanh(c_v)))
                c.append(c_v)
                labels.append(tag)
            hidden += h
        yield classify_states(self.classifier, hidden, labels)


def _compute_weighted_mean(own: Any, g: Any, gates: Sequence[Any], cells: Sequence[Any]) -> Any:
    """Return the mean of g and the words' cells, weighted by the exponentials of their gates."""
    exp, cmult, esum = dy.exp, dy.cmult, dy.esum
    weights = [exp(gate) for gate in (own, *gates)]
    total = esum(weights)
    return cmult(esum(list(map(cmult, weights, (g, *cells)))), exp(-dy.log(total)))


class _FusedGated:
    """Cell with one operator for the gates of a character, and one for those of a word."""

    def __init__(self, store: ParameterStore, width: int) -> None:
        self.of_char = FusedGates(store, "_char", "iofg")
        self.of_word = FusedGates(store, "_word", "ifg")
        self.gate = [
            store.add_vectors("b_gate"),
            store.add_matrices("W_gate"),
            store.add_matrices("U_gate"),
        ]
        self.width = width

    def begin(self) -> None:
        self.of_char.begin()
        self.of_word.begin()
        self.weights = [p.expr(True) for (p,) in self.gate]

    def step_word(self, x: Any, h: Any, c: Any) -> Any:
        return dy.vanilla_lstm_c(c, self.of_word(x, h))

    def step_char(self, x: Any, h: Any, c: Any) -> Pair:
        gates = self.of_char(x, h)
        return self._pick_output_gate(gates), dy.vanilla_lstm_c(c, gates)

    def step_gated(self, x: Any, h: Any, cells: Sequence[Any]) -> Pair:
        gates, width = self.of_char(x, h), self.width
        b, W, U = self.weights
        of_cells = [dy.logistic(dy.affine_transform([b, W, x, U, cell])) for cell in cells]
        i, g = dy.pick_range(gates, 0, width), dy.pick_range(gates, 3 * width, 4 * width)
        return self._pick_output_gate(gates), _compute_weighted_mean(i, g, of_cells, cells)

    def _pick_output_gate(self, gates: Any) -> Any:
        return dy.pick_range(gates, 2 * self.width, 3 * self.width)


class _HoistedGated:
    """Cell with separate gates, and W x as an operator of its own."""

    def __init__(self, store: ParameterStore, width: int) -> None:
        self.of_char = HoistedGates(store, "_char", 4)  # i, o, f, g
        self.of_word = HoistedGates(store, "_word", 3)  # i, f, g
        self.gate = HoistedGates(store, "_gate", 1)

    def begin(self) -> None:
        for gates in (self.of_char, self.of_word, self.gate):
            gates.begin()

    def step_word(self, x: Any, h: Any, c: Any) -> Any:
        gates, logistic, cmult = self.of_word, dy.logistic, dy.cmult
        i, f = logistic(gates(0, x, h)), logistic(gates(1, x, h))
        return cmult(f, c) + cmult(i, dy.tanh(gates(2, x, h)))

    def step_char(self, x: Any, h: Any, c: Any) -> Pair:
        i, o, g = self._compute_char_gates(x, h)
        f = dy.logistic(self.of_char(2, x, h))
        return o, dy.cmult(f, c) + dy.cmult(i, g)

    def step_gated(self, x: Any, h: Any, cells: Sequence[Any]) -> Pair:
        i, o, g = self._compute_char_gates(x, h)
        own = self.gate.transform_input(0, x)
        of_cells = [dy.logistic(own + self.gate.transform_state(0, cell)) for cell in cells]
        return o, _compute_weighted_mean(i, g, of_cells, cells)

    def _compute_char_gates(self, x: Any, h: Any) -> tuple[Any, Any, Any]:
        gates, logistic = self.of_char, dy.logistic
        return logistic(gates(0, x, h)), logistic(gates(1, x, h)), dy.tanh(gates(3, x, h))


NETWORKS = {
    "lattice_lstm": LatticeLSTM,
    "lattice_gru": LatticeGRU,
    "gated_lattice_lstm": GatedLatticeLSTM,
}
