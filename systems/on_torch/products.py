"""Matrix products and tanh by the faster of the libraries that PyTorch brings; memory that is kept.

On a CPU F.linear and torch.mm call MKL, which on AMD's processors does not use AVX-512. oneDNN,
which PyTorch has for nn.LSTM and for compiled code, does: on one Zen 5 core 1 400 rows by weights
of 256 x 10 000 take 36 ms (in chunks of 350 rows or fewer) instead of 79, their gradients 34 and 32
instead of 76 and 74, and 64, 32, 16 and 8 rows by weights of 256 x 1 024 go 2.0, 1.7, 1.5 and 1.3
times as fast. A call of it costs more, 14 to 20 us: 4 rows by 256 x 1 024 and 64 by 64 x 256
take as long in both, 1 and 8 rows by 64 x 256 take 14 and 19 us instead of 4 and 7.

torch.tanh calls MKL, too, which takes 2.3 ns for a number where sigmoid takes 0.3: 64 rows of 64,
128 and 256 take 10, 19 and 38 us, by sigmoid 5, 5 and 8; 8 rows of 128 take as long either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

ONEDNN = bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
LEAST = 1 << 20  # multiplications from which on oneDNN is no slower
LEAST_PACKED = 1 << 16  # numbers of a weight from which on oneDNN's own layout is worth making
LEAST_BY_PACKED = 1 << 19  # as LEAST, with a weight in that layout
LEAST_TANH = 1024  # numbers from which on tanh by sigmoid is no slower
# Measured on one core of a busy machine, processor time, adding a product of 1, 4, 8, 22 and 64
# rows: by 256 x 256 in place by MKL 8, 14, 19, 40 and 92 us, by oneDNN in its own layout 11, 19,
# 33, 52 and 106; by 512 x 512 27, 66, 88, 174 and 375, and 31, 49, 73, 138 and 348.
LEAST_FIXED = 1 << 18  # numbers of a weight that is never trained
LEAST_FIXED_ROWS = 4
_MINUS_ONE = torch.tensor(-1.0)
aten = torch.ops.aten


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


class FastLinear(nn.Linear):
    """nn.Linear by the faster product."""

    def forward(self, x: Tensor) -> Tensor:
        """x weight^T + bias, of rows (n, k)."""
        return linear(x, self.weight, self.bias)


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


class FixedProduct:
    """Products by one weight (k, m) that is never trained, with a bias (m,) or none.

    The layout that oneDNN prefers is made but once.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias, self.packed = weight, bias, None
        if not weight.is_cuda and weight.numel() >= LEAST_FIXED:
            self.packed = Repeated(weight.t().contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        """x weight + bias (n, m), new memory, of x (n, k)."""
        if self.packed is not None and len(x) >= LEAST_FIXED_ROWS:
            y = self.packed(x)
            return y if self.bias is None else y.add_(self.bias)
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add_to(self, y: Tensor, x: Tensor) -> Tensor:
        """y, to which x weight is added in place; no bias."""
        if self.packed is not None and len(x) >= LEAST_FIXED_ROWS:
            return y.add_(self.packed(x))
        return y.addmm_(x, self.weight)


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
        return len(self.rows) == 1 or n_multiplications >= LEAST


def tanh(x: Tensor, out: Tensor | None = None) -> Tensor:
    """tanh x = 2 sigmoid(2 x) - 1, within 2e-7; out: may be x."""
    if x.is_cuda or x.numel() < LEAST_TANH:
        return torch.tanh(x, out=out)
    doubled = torch.add(x, x, out=out).sigmoid_()
    return torch.add(_MINUS_ONE, doubled, alpha=2, out=doubled)


def through_tanh(dy: Tensor, y: Tensor) -> None:
    """Turn the gradient of y = tanh(x) into that of x, in place."""
    aten.tanh_backward.grad_input(dy, y, grad_input=dy)


def through_sigmoid(dy: Tensor, y: Tensor) -> None:
    """Turn the gradient of y = sigmoid(x) into that of x, in place."""
    aten.sigmoid_backward.grad_input(dy, y, grad_input=dy)


class Workspace:
    """Tensors by name, which grow where they must.

    PyTorch gives more than 32 MiB back to the system as soon as a tensor goes, and gets them as
    fresh pages, which cost more than to write them, for the next mini-batch.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """The memory of a name, on the device of `like`; holds whatever was there."""
        kept = self._kept.get(name)
        if kept is None or kept.numel() < prod(shape):
            with torch.inference_mode(False):
                kept = self._kept[name] = torch.empty(prod(shape), device=like.device)
        return kept[: prod(shape)].view(shape)
