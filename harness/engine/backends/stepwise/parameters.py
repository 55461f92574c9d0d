"""Parameters and their gradients: accumulated once or batch by batch, sparse for looked-up
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.engine.backends.stepwise.kernels import sum_outer
from harness.vertex.folding import FoldedTable
from harness.vertex.subgraph.columns import Pack


class Parameters:
    """float32 tensors by name, and the gradients that a mini-batch adds up.

    A gradient is written by its first contribution (no zeroing) and added to by later ones. A
    table's gradient is kept as (rows, values) pairs, and its update touches only these rows.
    """

    def __init__(self, weights: Mapping[str, NDArray[np.float32]], device: torch.device) -> None:
        self.values = {
            name: torch.tensor(weight, dtype=torch.float32, device=device)
            for name, weight in weights.items()
        }
        self.device = device
        self.packs: dict[str, Pack] = {}
        self.dense: dict[str, Tensor] = {}
        self.sparse: dict[str, list[tuple[Tensor, Tensor]]] = {}
        self._written: set[str] = set()

    def fold(self, tables: Iterable[FoldedTable]) -> None:
        """Multiply tables with weights, once; their products are parameters like any other."""
        for folded in tables:
            if folded.name not in self.values:
                product = self.values[folded.table] @ self.values[folded.weight]
                self.values[folded.name] = product

    def pack(self, packs: Iterable[Pack]) -> None:
        """Bring columns of parameters side by side; packs are parameters like any other.

        What is learned are the parameters that they are made of.
        """
        for pack in packs:
            if pack.name not in self.values:
                columns = [self.columns(p.parameter, p.start, p.width) for p in pack.parts]
                self.values[pack.name] = torch.cat(columns, dim=-1)
                self.packs[pack.name] = pack

    def columns(self, parameter: str, start: int, width: int) -> Tensor:
        """Columns of a parameter, a view."""
        return self.values[parameter].narrow(-1, start, width)

    def renew(self, name: str) -> None:
        """Bring the columns of a pack side by side again."""
        for part, at in self.packs[name].places():
            target = self.columns(name, at, part.width)
            target.copy_(self.columns(part.parameter, part.start, part.width))

    def clear(self) -> None:
        """Forget the gradients of the last mini-batch."""
        self._written.clear()
        self.sparse.clear()

    def add_outer(self, name: str, x: Tensor, dy: Tensor) -> None:
        """Add x^T dy, summed over the rows; a row may be a matrix, as wide as the gradient."""
        gradient = self._gradient(name)
        x, dy = x.reshape(-1, gradient.shape[0]), dy.reshape(-1, gradient.shape[1])
        sum_outer(x, dy, gradient, accumulate=name in self._written)
        self._written.add(name)

    def add_sum(self, name: str, dy: Tensor) -> None:
        """Add the sum of the rows; a row may be a matrix, as wide as the gradient."""
        gradient = self._gradient(name)
        dy = dy.reshape(-1, len(gradient))
        if name in self._written:
            gradient.add_(dy.sum(0))
        else:
            torch.sum(dy, 0, out=gradient)
            self._written.add(name)

    def add_rows(self, name: str, rows: Tensor, dy: Tensor) -> None:
        """Add each row of dy to the row of the table that it was looked up from.

        dy must stay as it is until the update; the engine's buffers do.
        """
        self.sparse.setdefault(name, []).append((rows, dy))

    def update(self, learning_rate: float) -> None:
        """One step of SGD on every parameter that has a gradient."""
        for name in self._written:
            if name in self.packs:
                for part, at in self.packs[name].places():
                    gradient = self.dense[name].narrow(-1, at, part.width)
                    self.columns(part.parameter, part.start, part.width).add_(
                        gradient, alpha=-learning_rate
                    )
            else:
                self.values[name].add_(self.dense[name], alpha=-learning_rate)
        for name in self.packs:
            self.renew(name)
        for name, pieces in self.sparse.items():
            for rows, dy in pieces:
                self.values[name].index_add_(0, rows, dy, alpha=-learning_rate)

    def gradients(self) -> dict[str, NDArray[np.float32]]:
        """Dense gradients of all parameters, for checking."""
        result = {}
        for name, value in self.values.items():
            gradient = torch.zeros_like(value)
            if name in self._written:
                gradient += self.dense[name]
            for rows, dy in self.sparse.get(name, []):
                gradient.index_add_(0, rows, dy)
            result[name] = gradient
        for name, pack in self.packs.items():
            packed = result.pop(name)
            for part, at in pack.places():
                mine = result[part.parameter].narrow(-1, part.start, part.width)
                mine += packed.narrow(-1, at, part.width)
        return {name: gradient.cpu().numpy() for name, gradient in result.items()}

    def _gradient(self, name: str) -> Tensor:
        if name not in self.dense:
            self.dense[name] = torch.empty_like(self.values[name])
        return self.dense[name]
