"""Everything about one vertex function in one mini-batch: its rows, gathers and pulls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.engine.lowering.plan import Slots

Index = NDArray[np.int64]
NOT_CONTIGUOUS = -1


@dataclass(frozen=True, eq=False, slots=True)
class Gather:
    """The child rows that one type reads, row by row of the type, slots side by side.

    index (n * n_slots,): rows of the children's state. runs (n_batches + 1,): of every batch the
    first row where all its rows follow one another, else NOT_CONTIGUOUS; the last: the same for all
    batches at once.
    edge_start (n + 1,): where each vertex's edges begin, for gathers of any number of children
    (empty for gathers by slot).
    """

    index: Index
    runs: Index
    edge_start: Index


@dataclass(frozen=True, eq=False, slots=True)
class TypeRows:
    """The vertices of one type in execution order.

    vertices (n,), starts (n_batches + 1,): batch boundaries. first_row (n_batches,): where each
    batch begins among the rows of the states that this type writes.
    """

    vertices: Index
    starts: Index
    first_row: Index

    @property
    def n(self) -> int:
        """Vertices of this type."""
        return len(self.vertices)


@dataclass(frozen=True, eq=False, slots=True)
class TypeGeometry:
    """One type in one mini-batch.

    gathers: by slots (None: every child). pulls: by name, one int64 a row of the type.
    largest: rows of the largest batch. contiguous: all batches of the type follow one another among
    the state rows.
    goes_back_at_once: whether the backward stage may take all rows, as that of outputs does.
    """

    rows: TypeRows
    gathers: Mapping[Slots, Gather]
    pulls: Mapping[str, Index]
    largest: int
    contiguous: bool
    goes_back_at_once: bool = False

    @property
    def n_at_once(self) -> int:
        """The most rows that a stage which takes batch by batch gets."""
        return self.rows.n if self.goes_back_at_once else self.largest

    @property
    def n_edges(self) -> int:
        """Incoming edges of all vertices, where the type gathers any number of children."""
        return int(self.gathers[None].edge_start[-1]) if None in self.gathers else 0
