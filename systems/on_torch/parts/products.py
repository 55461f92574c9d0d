"""Matrix products by the faster of the libraries that PyTorch brings.

On a CPU F.linear and torch.mm call MKL, which on AMD's processors does not use AVX-512. oneDNN,
which PyTorch has for nn.LSTM and for compiled code, does: on one Zen 5 core 1 400 rows by weights
of 256 x 10 000 take 36 ms (in chunks of 350 rows or fewer) instead of 79, their gradients 34 and 32
instead of 76 and 74, and 64, 32, 16 and 8 rows by weights of 256 x 1 024 go 2.0, 1.7, 1.5 and 1.3
times as fast.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

ONEDNN = bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
LIBRARY = "onednn" if ONEDNN else "blas"


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, (n, m); x (n, k), weight (m, k) of any strides. No gradients."""
    if ONEDNN and not x.is_cuda and x.numel():
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return found
    return functional.linear(x, weight, bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x weight^T + bias, with gradients."""
    found: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return found


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        return product(dy, weight.t()), product(dy.t().contiguous(), x.t()), dy.sum(0)
