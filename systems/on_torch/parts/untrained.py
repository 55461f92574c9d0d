"""Linear layers of networks that are never trained: layouts of their weights are made once.

They take mini-batches (n, k) without gradients, and give new memory, which may be written.
"""

from __future__ import annotations

from torch import Tensor, nn

from systems.on_torch.parts.products import Repeated


class UntrainedLinear(nn.Linear):
    """x W^T + b."""

    _product: Repeated | None = None  # made in the first pass, when weights have been set

    def forward(self, x: Tensor) -> Tensor:
        """(n, m), of x (n, k)."""
        if self._product is None:
            self._product = Repeated(self.weight, self.bias)
        return self._product(x)


class UntrainedPair(nn.Linear):
    """[x y] W^T + b for x and y of equal widths, as a sum of what each of both gives."""

    _products: tuple[Repeated, Repeated] | None = None

    def of_first(self, x: Tensor) -> Tensor:
        """What x gives, and b, (n, m)."""
        return self._both()[0](x)

    def of_second(self, y: Tensor) -> Tensor:
        """What y gives (n, m)."""
        return self._both()[1](y)

    def _both(self) -> tuple[Repeated, Repeated]:
        if self._products is None:
            first, second = self.weight.chunk(2, dim=1)
            self._products = Repeated(first, self.bias), Repeated(second)
        return self._products
