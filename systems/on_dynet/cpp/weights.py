"""The shared weights cut into the parameters of a program in C++, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.contracts.model import Weights

Array = NDArray[np.float32]
TABLES = {"tree_lstm": ("embedding",), "lattice_lstm": ("characters", "words")}
N_GATES = {
    "tree_lstm": {"W": 3, "b_leaf": 3, "U": 3, "b": 3},
    "lattice_lstm": {f"{letter}_{arc}": 4 for letter in "WUb" for arc in ("char", "word")},
}


class Piece(NamedTuple):
    """A parameter of a program: its name there, and its values; a vector, or a matrix (in, out).

    DyNet keeps its matrices (out, in) column after column, which are the same numbers in the same
    order.
    """

    name: str
    values: Array


def pieces(weights: Weights, n_gates: Mapping[str, int]) -> Iterator[Piece]:
    """Every weight as it is, those with gates in equal pieces of columns, NAME.0, NAME.1, ..."""
    for name, values in weights.items():
        n = n_gates.get(name)
        if n is None:
            yield Piece(name, np.ascontiguousarray(values))
            continue
        for k, part in enumerate(np.split(values, n, axis=-1)):
            yield Piece(f"{name}.{k}", np.ascontiguousarray(part))


def joined(
    weights: Weights, n_gates: Mapping[str, int], read: Callable[[Piece], Array]
) -> dict[str, Array]:
    """Arrays in the shapes of `weights` from those that `read` returns for their pieces."""
    found: dict[str, list[Array]] = {}
    for piece in pieces(weights, n_gates):
        found.setdefault(piece.name.partition(".")[0], []).append(read(piece))
    return {name: np.concatenate(parts, axis=-1) for name, parts in found.items()}
