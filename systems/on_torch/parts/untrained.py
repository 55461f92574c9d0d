"""Products by parameters that are never trained, so that a layout of them is made but once."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.contracts.model import Model
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.products import Repeated

# Measured on one core of a busy machine, processor time, adding a product of 1, 4, 8, 22 and 64
# rows: by 256 x 256 in place by MKL 8, 14, 19, 40 and 92 us, by oneDNN in its own layout 11, 19,
# 33, 52 and 106; by 512 x 512 27, 66, 88, 174 and 375, and 31, 49, 73, 138 and 348.
LEAST_PACKED = 1 << 18  # numbers of a weight
LEAST_ROWS = 4


class Product:
    """By one weight (k, m), with a bias (m,) or none."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias, self.packed = weight, bias, None
        if not weight.is_cuda and weight.numel() >= LEAST_PACKED:
            self.packed = Repeated(weight.t().contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        """x weight + bias (n, m), new memory, of x (n, k)."""
        if self.packed is not None and len(x) >= LEAST_ROWS:
            y = self.packed(x)
            return y if self.bias is None else y.add_(self.bias)
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add_to(self, y: Tensor, x: Tensor) -> Tensor:
        """y, to which x weight is added in place; no bias."""
        if self.packed is not None and len(x) >= LEAST_ROWS:
            return y.add_(self.packed(x))
        return y.addmm_(x, self.weight)


class UntrainedParameters(PlainParameters):
    """For networks that run inference only."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._products: dict[tuple[str, int | None], Product] = {}

    def by(self, weight: str, bias: str | None = None, half: int | None = None) -> Product:
        """Products by a weight, or by one half of its rows; made in the first pass."""
        key = weight, half
        if key not in self._products:
            W = self[weight]
            part = W if half is None else W.chunk(2)[half]
            self._products[key] = Product(part, None if bias is None else self[bias])
        return self._products[key]
