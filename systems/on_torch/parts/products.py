"""Matrix products by the faster of the libraries that PyTorch brings.

On a CPU F.linear and torch.mm call MKL, which on AMD's processors does not use AVX-512. oneDNN,
which PyTorch has for nn.LSTM and for compiled code, does: on one Zen 5 core 1 400 rows by weights
of 256 x 10 000 take 36 ms (in chunks of 350 rows or fewer) instead of 79, their gradients 34 and 32
instead of 76 and 74, and 64, 32, 16 and 8 rows by weights of 256 x 1 024 go 2.0, 1.7, 1.5 and 1.3
times as fast. A call of it costs more, 14 to 20 us: 4 rows by 256 x 1 024 and 64 by 64 x 256
take as long in both, 1 and 8 rows by 64 x 256 take 14 and 19 us instead of 4 and 7.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

ONEDNN = bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
LEAST = 1 << 20  # multiplications from which on oneDNN is no slower
LEAST_PACKED = 1 << 16  # numbers of a weight from which on oneDNN's own layout is worth making
LEAST_BY_PACKED = 1 << 19  # as LEAST, with a weight in that layout
LIBRARY = "onednn" if ONEDNN else "blas"


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, (n, m); x (n, k), weight (m, k) of any strides. No gradients."""
    if ONEDNN and not x.is_cuda and x.numel() * len(weight) >= LEAST:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, dense(weight), bias, "none", [], "")
        return found
    return functional.linear(x, weight, bias)


def dense(weight: Tensor) -> Tensor:
    """The matrix, or a copy of it where it has gaps, which oneDNN reads in plain, slow code.

    (256, 1 100) by (1 100, 64), the latter columns of a wider array: 430 ms instead of 0.2.
    """
    if weight.is_contiguous() or weight.t().is_contiguous():
        return weight
    return weight.contiguous() if weight.stride(1) == 1 else weight.t().contiguous().t()


class Repeated:
    """Products of few rows each by one weight (m, k), given to oneDNN in a layout of its own.

    Of 4, 8, 22 and 64 rows by 256 x 1 024 they take 26, 36, 73 and 157 us, not 45, 54, 85 and 185;
    the layout is made in 200. Where the weight is a matrix' transpose, there is nothing to gain.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.packed = weight, None
        if ONEDNN and not weight.is_cuda and weight.numel() >= LEAST_PACKED:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(dense(weight))

    def __call__(self, x: Tensor) -> Tensor:
        """x weight^T (n, m)."""
        if self.packed is None or len(x) * self.weight.numel() < LEAST_BY_PACKED:
            return product(x, self.weight)
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")
        return found


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x weight^T + bias, with gradients."""
    found: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return found


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(x weight^T + bias), with gradients."""
    found: Tensor = _LinearReLU.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return found


def weight_gradient(dy: Tensor, x: Tensor) -> Tensor:
    """dy^T x (m, k), of dy (n, m) and x (n, k)."""
    return product(dy.t().contiguous(), x.t())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        return product(dy, weight.t()), weight_gradient(dy, x), dy.sum(0)


class _LinearReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        y = product(x, weight, bias).relu_()
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, weight, y = ctx.saved_tensors
        d = torch.ops.aten.threshold_backward(dy, y, 0)
        dx = product(d, weight.t()) if ctx.needs_input_grad[0] else None
        return dx, weight_gradient(d, x), d.sum(0)
