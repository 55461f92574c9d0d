"""Inputs of the programs in C++: weights in pieces, and mini-batches as columns.

A program is a file of `programs/`, or a class in one, and an entry of PROGRAMS, or of MANUAL if it
batches manually. It is registered by the name of its model, which then ends with "_manual".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.systems.on_dynet.lstm_gates import MAX_FUSED, swap_first_gates, swap_last_gates
from dynbatch.systems.plans.columns import (
    Columns,
    build_chain_columns,
    build_lattice_columns,
    build_parsed_columns,
    build_tree_columns,
)

Array = NDArray[np.float32]


class Pieces(NamedTuple):
    """Number of equal pieces of a weight, and the axis along which it is cut."""

    n: int
    axis: int = -1


@dataclass(frozen=True, slots=True)
class CppInputs:
    """Inputs of a program.

    Attributes:
        build_columns: builds the columns of a mini-batch of the model.
        tables: weights whose rows are looked up.
        cuts: weights that are cut into pieces, NAME.0, NAME.1, ...
        fused: weights of gates f, i, o and g, which one operator computes up to MAX_FUSED: they
            stay whole then, with the gates in the order of DyNet, whether or not they have cuts.
        has_lstms: every U has the suffix of an LSTM, DyNet's own, with weights W, U and b.
    """

    build_columns: Callable[[Any, Sequence[Any]], Columns]
    tables: Sequence[str]
    cuts: Mapping[str, Pieces] = field(default_factory=dict)
    fused: Collection[str] = ()
    has_lstms: bool = False

    def is_fused(self, name: str, values: Array) -> bool:
        """Return whether one operator computes all gates of a weight."""
        return name in self.fused and values.shape[-1] <= 4 * MAX_FUSED

    def list_lstm_weights(self, names: Iterable[str]) -> set[str]:
        """Return the weights of DyNet's own LSTMs."""
        if not self.has_lstms:
            return set()
        return {f"{letter}{name[1:]}" for name in names if name[0] == "U" for letter in "WUb"}


class WeightPiece(NamedTuple):
    """Parameter of a program: its name there, and its values, a vector or a matrix (in, out).

    DyNet stores matrices (out, in) in column-major order, which is the same sequence of numbers.
    """

    name: str
    values: Array


def split_weights(weights: Weights, inputs: CppInputs) -> Iterator[WeightPiece]:
    """Yield every weight, in pieces if the program cuts it, with gates in the order of DyNet."""
    of_lstms = inputs.list_lstm_weights(weights)
    for name, values in weights.items():
        if name in of_lstms:
            yield WeightPiece(name, swap_last_gates(values))
        elif inputs.is_fused(name, values):
            yield WeightPiece(name, swap_first_gates(values))
        elif name not in inputs.cuts:
            yield WeightPiece(name, np.ascontiguousarray(values))
        else:
            n, axis = inputs.cuts[name]
            for k, part in enumerate(np.split(values, n, axis=axis)):
                yield WeightPiece(f"{name}.{k}", np.ascontiguousarray(part))


def join_pieces(
    weights: Weights, inputs: CppInputs, read: Callable[[WeightPiece], Array]
) -> dict[str, Array]:
    """Join the arrays that `read` returns for the pieces to arrays in the shapes of `weights`."""
    pieces: dict[str, list[Array]] = {}
    for piece in split_weights(weights, inputs):
        pieces.setdefault(piece.name.partition(".")[0], []).append(read(piece))
    axes = {name: cut.axis for name, cut in inputs.cuts.items()}
    joined = {
        name: np.concatenate(parts, axis=axes.get(name, -1)) for name, parts in pieces.items()
    }
    joined |= {name: swap_last_gates(joined[name]) for name in inputs.list_lstm_weights(weights)}
    fused = [name for name, values in weights.items() if inputs.is_fused(name, values)]
    return joined | {name: swap_first_gates(joined[name]) for name in fused}


TAGGER = {"W_tag": Pieces(2, axis=0)}
PROGRAMS = {
    "tree_lstm": CppInputs(
        build_tree_columns, ("embedding",), {name: Pieces(3) for name in ("W", "b_leaf", "U", "b")}
    ),
    "tree_lstm_child_sum": CppInputs(
        build_tree_columns, ("embedding",), {name: Pieces(3) for name in "WUb"}
    ),
    "lattice_lstm": CppInputs(
        build_lattice_columns,
        ("characters", "words"),
        {f"{letter}_{arc}": Pieces(4) for letter in "WUb" for arc in ("char", "word")},
        fused=("W_char", "U_char", "W_word", "U_word"),
    ),
    "bilstm": CppInputs(build_chain_columns, ("embedding",), TAGGER, has_lstms=True),
    "bilstm_char": CppInputs(
        build_chain_columns, ("embedding", "characters"), TAGGER, has_lstms=True
    ),
    "parser": CppInputs(build_parsed_columns, ("embedding", "tags"), has_lstms=True),
}
MANUAL = {
    "bilstm": PROGRAMS["bilstm"],
}
