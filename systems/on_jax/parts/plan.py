"""What the host hands to a compiled program for one mini-batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Vectors = Mapping[str, NDArray[np.integer]]
Lengths = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Index vectors of a mini-batch, padded to the sizes that its program is compiled for.

    sizes: static sizes that the network reads; they and the lengths choose the program.
    ids: all vectors end to end, so that they reach the device in one copy; lengths: name and number
    of entries of each. outputs: which rows the outputs are, in the order of MiniBatch.outputs.
    """

    sizes: Hashable
    lengths: Lengths
    ids: NDArray[np.int32]
    outputs: slice | NDArray[np.integer]

    @property
    def program(self) -> tuple[Hashable, Lengths]:
        """What a program is compiled for."""
        return self.sizes, self.lengths


def planned(sizes: Hashable, outputs: slice | NDArray[np.integer], vectors: Vectors) -> Plan:
    """Join the vectors."""
    lengths = tuple((name, len(vector)) for name, vector in vectors.items())
    return Plan(sizes, lengths, np.concatenate([*vectors.values()], dtype=np.int32), outputs)


def rounded_up(n: int, multiple: int) -> int:
    """The next multiple, at least one of it."""
    return max(multiple, -(-n // multiple) * multiple)


def padded(vector: NDArray[np.integer], n: int, value: int) -> NDArray[np.int32]:
    """The vector and as many more entries as make n."""
    longer = np.full(n, value, dtype=np.int32)
    longer[: len(vector)] = vector
    return longer
