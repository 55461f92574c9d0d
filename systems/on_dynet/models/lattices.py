"""Lattice models in DyNet, written for one lattice; DyNet batches across lattices and arcs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import dynet as dy

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Lattice
from dynbatch.systems.on_dynet.layers import add_to_graph, classify_states
from dynbatch.systems.on_dynet.lstm_gates import MAX_FUSED
from dynbatch.systems.on_dynet.runtime import ParameterStore
from dynbatch.systems.on_dynet.segments import GraphSegment

N_GATES = 4  # f, i, o and g
Step = Callable[[Any, Any, Any], tuple[Any, Any]]


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
    """LSTM of an arc with DyNet's operator for all gates, from W x + U h + b."""

    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        self.matrices = [store.add_lstm_gates(f"{letter}_{arc}") for letter in "WU"]
        self.biases, self.width = store.add_vectors(f"b_{arc}", N_GATES), width

    def begin(self) -> Step:
        """Return a step function for a new graph; local names avoid the cost of lookups."""
        W, U = add_to_graph(self.matrices)
        f, i, o, g = add_to_graph(self.biases)
        # The operator adds 1 to f, which the biases already include.
        joined = dy.concatenate([i, f - 1.0, o, g])
        # DyNet adds the gradient of an operand that all nodes of a batch share at the first row of
        # the batch that computed it. reshape is never batched, so that this is the right row.
        b = dy.reshape(joined, joined.dim()[0])
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
    """LSTM of an arc with separate gates: DyNet batches W x + b over all inputs in advance."""

    def __init__(self, store: ParameterStore, arc: str, width: int) -> None:
        self.parameters = [
            store.add_vectors(f"b_{arc}", N_GATES),
            store.add_matrices(f"W_{arc}", N_GATES),
            store.add_matrices(f"U_{arc}", N_GATES),
        ]

    def begin(self) -> Step:
        self.weights = list(zip(*map(add_to_graph, self.parameters), strict=True))
        return self.step

    def step(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gate, logistic, tanh, cmult = self.compute_gate, dy.logistic, dy.tanh, dy.cmult
        f, i, o = (logistic(gate(k, x, h)) for k in range(3))
        new = cmult(i, tanh(gate(3, x, h))) + cmult(f, c)
        return cmult(o, tanh(new)), new

    def compute_gate(self, k: int, x: Any, h: Any) -> Any:
        """Return the k-th gate before its activation."""
        b, W, U = self.weights[k]
        return dy.affine_transform([b, W, x]) + U * h


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
            *store.add_vectors(f"b_{arc}", [2 * width]),
            *store.add_matrices(f"W_{arc}", [2 * width]),
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


NETWORKS = {
    "lattice_lstm": LatticeLSTM,
    "lattice_gru": LatticeGRU,
}
