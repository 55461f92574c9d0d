"""Matrix products into given memory, with the shapes that BLAS handles badly turned over."""

from __future__ import annotations

import torch
from torch import Tensor

# Below this width MKL's row-major product is slow: 2400 x 256 times 256 x 5 takes 920 us on one
# Zen 4 core, its transpose 170 us; x^T dy of the same sizes 1330 us against 140 us.
THIN = 16


def multiply(x: Tensor, weight: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
    """out = x W, or out += it; shapes (n, k), (k, m), (n, m)."""
    if accumulate:
        out.addmm_(x, weight)
    elif weight.shape[1] < THIN and x.device.type == "cpu":
        out.copy_(torch.mm(weight.t(), x.t()).t())
    else:
        torch.mm(x, weight, out=out)


def sum_outer(x: Tensor, dy: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
    """out = x^T dy, summed over the rows, or out += it; shapes (n, k), (n, m), (k, m)."""
    if accumulate:
        out.addmm_(x.t(), dy)
    elif dy.shape[1] < THIN and x.device.type == "cpu":
        out.copy_(torch.mm(dy.t().contiguous(), x).t())
    else:
        torch.mm(x.t(), dy, out=out)


def multiply_rows(
    x: Tensor, weight: Tensor, out: Tensor, bias: Tensor | None, *, accumulate: bool
) -> None:
    """out = x weight for a matrix a vertex, optionally + bias, or added to what out holds.

    x (n, r * k), weight (k, m), out (n, r * m): one product of n * r rows where rows of vertices
    follow one another in memory, else one product a vertex.
    """
    k, m = weight.shape
    if x.is_contiguous() and out.is_contiguous():
        x, out = x.view(-1, k), out.view(-1, m)
        if accumulate:
            out.addmm_(x, weight)
        elif bias is not None:
            torch.addmm(bias, x, weight, out=out)
        else:
            torch.mm(x, weight, out=out)
        return
    x, out = x.view(len(x), -1, k), out.view(len(out), -1, m)
    each = weight.expand(len(x), k, m)
    if accumulate:
        out.baddbmm_(x, each)
    elif bias is not None:
        torch.baddbmm(bias, x, each, out=out)
    else:
        torch.bmm(x, each, out=out)
