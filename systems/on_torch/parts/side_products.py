"""Products of children's rows, those of each side by a matrix of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from systems.on_torch.parts import products
from systems.on_torch.parts.products import product, weight_gradient


class SideWeights(NamedTuple):
    """A matrix for each of s sides, and one bias for all.

    rows: (m, k) each, as nn.Linear has them. stacked (s, k, m): the same once more, transposed.
    bias (m,).
    """

    rows: Sequence[Tensor]
    stacked: Tensor
    bias: Tensor

    @classmethod
    def of(cls, rows: Sequence[Tensor], bias: Tensor) -> SideWeights:
        """Stack the matrices."""
        return cls(rows, torch.stack([side.t() for side in rows]), bias)

    def forward(self, x: Tensor, function: Callable[..., Any], out: Tensor) -> None:
        """Write function(x weight + bias), of x (n, s, k), to out (n, s, m)."""
        if self._apart(x):
            for side, weight in enumerate(self.rows):
                function(product(x[:, side], weight, self.bias), out=out[:, side])
        else:
            found = torch.baddbmm(self.bias, x.transpose(0, 1), self.stacked)
            function(found, out=out.transpose(0, 1))

    def backward(self, d: Tensor) -> Tensor:
        """The gradient of x (n, s, k) from that of the products (n, s, m)."""
        if self._apart(d):
            sides = zip(d.unbind(1), self.rows, strict=True)
            return torch.stack([product(own, weight.t()) for own, weight in sides], 1)
        return torch.bmm(d.transpose(0, 1), self.stacked.transpose(1, 2)).transpose(0, 1)

    def gradients(self, d: Tensor, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Those of every matrix (m, k) and of the bias, over all rows at once."""
        sides = zip(d.unbind(1), x.unbind(1), strict=True)
        return [weight_gradient(*side) for side in sides], d.sum((0, 1))

    def _apart(self, x: Tensor) -> bool:
        """Whether a product for each side is no slower than one call for all."""
        n_multiplications = len(x) * self.stacked[0].numel()
        return len(self.rows) == 1 or n_multiplications >= products.LEAST
