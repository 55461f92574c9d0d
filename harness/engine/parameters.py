"""Parameters of an engine, in the memory of any library: loaded ones, and those made of others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.vertex.folding import FoldedTable
from dynbatch.harness.vertex.shared_products import RowBlock
from dynbatch.harness.vertex.subgraph.columns import Pack

A = TypeVar("A", bound=Any)  # an array of NumPy or PyTorch
LookedUp = Iterable[tuple[str, Any, Any]]  # a table, its looked-up rows, and their gradients


class ParameterMemory(ABC, Generic[A]):
    """Parameters as float32 arrays by name, and their dense gradients.

    The arrays are NumPy's or PyTorch's; both libraries have the operators that are used here.

    Attributes:
        loaded: Names of the parameters that are learned.
        packs: Parameters that consist of columns of others.
        dense: Memory of the gradients, as far as it is allocated.
    """

    def __init__(self, values: Mapping[str, A]) -> None:
        self.values, self.loaded = dict(values), tuple(values)
        self.packs: dict[str, Pack] = {}
        self.dense: dict[str, A] = {}
        self._blocks: list[RowBlock] = []

    @abstractmethod
    def allocate(self, *shape: int) -> A:
        """Allocate an uninitialized array of floats."""

    @abstractmethod
    def to_numpy(self, values: A) -> NDArray[Any]:
        """Return an array in NumPy, which may share its memory."""

    def keep(self, product: A) -> A:
        """Return a new array in the form in which parameters are stored."""
        return product

    def fold(self, tables: Iterable[FoldedTable]) -> None:
        """Multiply tables by weights, once; the products become parameters."""
        for folded in tables:
            if folded.name not in self.values:
                product = self.values[folded.table] @ self.values[folded.weight]
                self.values[folded.name] = self.keep(product)

    def view_rows(self, blocks: Iterable[RowBlock]) -> None:
        """Make rows of parameters readable as parameters, without a copy."""
        for block in blocks:
            rows = self.values[block.parameter][block.start : block.start + block.n]
            self.values[block.name] = rows
            self._blocks.append(block)

    def pack(self, packs: Iterable[Pack]) -> None:
        """Concatenate columns of parameters into packs, which become parameters.

        The update changes the parameters that a pack consists of.
        """
        for pack in packs:
            if pack.name not in self.values:
                *n_rows, _ = self.values[pack.parts[0].parameter].shape
                width = sum(part.width for part in pack.parts)
                self.values[pack.name] = self.allocate(*n_rows, width)
                self.packs[pack.name] = pack
                self.refresh_pack(pack.name)

    def view_columns(self, parameter: str, start: int, width: int) -> A:
        """Return columns of a parameter as a view."""
        columns: A = self.values[parameter][..., start : start + width]
        return columns

    def refresh_pack(self, name: str) -> None:
        """Copy the current columns of a pack's parameters into the pack."""
        for part, at in self.packs[name].iterate_parts():
            target = self.view_columns(name, at, part.width)
            target[...] = self.view_columns(part.parameter, part.start, part.width)

    def provide_gradient(self, name: str) -> A:
        """Return the memory of a parameter's gradient."""
        if name not in self.dense:
            self.dense[name] = self.allocate(*self.values[name].shape)
        return self.dense[name]

    def collect_gradients(self, having: Iterable[str], looked_up: LookedUp) -> Weights:
        """Return dense gradients of the loaded parameters, for checking.

        Args:
            having: The parameters with a dense gradient in this mini-batch.
        """
        gradients = {
            name: np.zeros(value.shape, dtype=np.float32) for name, value in self.values.items()
        }
        for name in having:
            gradients[name] += self.to_numpy(self.dense[name])
        for table, rows, dy in looked_up:
            np.add.at(gradients[table], self.to_numpy(rows), self.to_numpy(dy))
        for name, pack in self.packs.items():
            for part, at in pack.iterate_parts():
                mine = gradients[part.parameter][..., part.start : part.start + part.width]
                mine += gradients[name][..., at : at + part.width]
        for block in self._blocks:
            mine = gradients[block.parameter][block.start : block.start + block.n]
            mine += gradients[block.name]
        return {name: gradients[name] for name in self.loaded}

    def copy_weights(self) -> Weights:
        """Return copies of the loaded parameters."""
        return {name: self.to_numpy(self.values[name]).copy() for name in self.loaded}
