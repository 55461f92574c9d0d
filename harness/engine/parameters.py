"""Parameters and their gradients: accumulated once or batch by batch, sparse for looked-up
tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.engine.memory_kernels import update_rows
from harness.engine.products import sum_outer


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
        self.arrays = {
            name: value.numpy() for name, value in self.values.items() if device.type == "cpu"
        }
        self.dense: dict[str, Tensor] = {}
        self.sparse: dict[str, list[tuple[Tensor, Tensor]]] = {}
        self._written: set[str] = set()

    def clear(self) -> None:
        """Forget the gradients of the last mini-batch."""
        self._written.clear()
        self.sparse.clear()

    def add_outer(self, name: str, x: Tensor, dy: Tensor) -> None:
        """Add x^T dy, summed over the rows."""
        gradient = self._gradient(name)
        if name in self._written:
            gradient.addmm_(x.t(), dy)
        else:
            sum_outer(x, dy, gradient)
            self._written.add(name)

    def add_sum(self, name: str, dy: Tensor) -> None:
        """Add the sum of the rows."""
        gradient = self._gradient(name)
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
            self.values[name].add_(self.dense[name], alpha=-learning_rate)
        for name, pieces in self.sparse.items():
            for rows, dy in pieces:
                self._update_table(name, rows, dy, learning_rate)

    def _update_table(self, name: str, rows: Tensor, dy: Tensor, learning_rate: float) -> None:
        table = self.values[name]
        if table.device.type == "cpu":
            update_rows(table.numpy(), rows.numpy(), dy.numpy(), np.float32(learning_rate))
        else:
            table.index_add_(0, rows, dy, alpha=-learning_rate)

    def gradients(self) -> dict[str, NDArray[np.float32]]:
        """Dense gradients of all parameters, for checking."""
        result = {}
        for name, value in self.values.items():
            gradient = torch.zeros_like(value)
            if name in self._written:
                gradient += self.dense[name]
            for rows, dy in self.sparse.get(name, []):
                gradient.index_add_(0, rows, dy)
            result[name] = gradient.cpu().numpy()
        return result

    def _gradient(self, name: str) -> Tensor:
        if name not in self.dense:
            self.dense[name] = torch.empty_like(self.values[name])
        return self.dense[name]
