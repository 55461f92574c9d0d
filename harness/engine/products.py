"""Matrix products into given memory, with the shapes that BLAS handles badly turned over."""

from __future__ import annotations

import torch
from torch import Tensor

# Below this width MKL's row-major product is slow: 2400 x 256 times 256 x 5 takes 920 us on one
# Zen 4 core, its transpose 170 us; x^T dy of the same sizes 1330 us against 140 us.
THIN = 16


def multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """out = x weight; shapes (n, k), (k, m), (n, m)."""
    if weight.shape[1] < THIN and x.device.type == "cpu":
        out.copy_(torch.mm(weight.t(), x.t()).t())
    else:
        torch.mm(x, weight, out=out)


def sum_outer(x: Tensor, dy: Tensor, out: Tensor) -> None:
    """out = x^T dy, summed over the rows; shapes (n, k), (n, m), (k, m)."""
    if dy.shape[1] < THIN and x.device.type == "cpu":
        out.copy_(torch.mm(dy.t().contiguous(), x).t())
    else:
        torch.mm(x.t(), dy, out=out)
