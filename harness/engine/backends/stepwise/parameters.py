"""Gradients of parameters: accumulated once or batch by batch, sparse for looked-up tables."""

from __future__ import annotations

import torch
from torch import Tensor

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.backends.stepwise.kernels import sum_outer
from dynbatch.harness.engine.torch_parameters import TorchParameters


class StepwiseParameters(TorchParameters):
    """Parameters with the gradients of one mini-batch.

    The first contribution to a gradient overwrites it (so that it is never zeroed), and later ones
    are added. The gradient of a table is stored as (table, rows, values), and its update changes
    these rows only.
    """

    def __init__(self, weights: Weights, device: torch.device) -> None:
        super().__init__(weights, device)
        self.sparse: list[tuple[str, Tensor, Tensor]] = []
        self.written: dict[str, None] = {}

    def clear(self) -> None:
        """Clear the gradients of the last mini-batch."""
        self.written.clear()
        self.sparse.clear()

    def add_outer(self, name: str, x: Tensor, dy: Tensor) -> None:
        """Add x^T dy, summed over the rows; a row may be a matrix, as wide as the gradient."""
        gradient = self.provide_gradient(name)
        x, dy = x.reshape(-1, gradient.shape[0]), dy.reshape(-1, gradient.shape[1])
        sum_outer(x, dy, gradient, accumulate=name in self.written)
        self.written[name] = None

    def add_sum(self, name: str, dy: Tensor) -> None:
        """Add the sum of the rows; a row may be a matrix, as wide as the gradient."""
        gradient = self.provide_gradient(name)
        dy = dy.reshape(-1, len(gradient))
        if name in self.written:
            gradient.add_(dy.sum(0))
        else:
            torch.sum(dy, 0, out=gradient)
            self.written[name] = None

    def add_rows(self, name: str, rows: Tensor, dy: Tensor) -> None:
        """Add each row of dy to the row of the table from which it was looked up.

        dy must not change until the update; the engine's buffers do not.
        """
        self.sparse.append((name, rows, dy))
