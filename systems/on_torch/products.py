"""Matmuls and tanh by the fastest library in PyTorch, and reused memory.

On a CPU, F.linear and torch.mm call MKL, which does not use AVX-512 on AMD processors. oneDNN,
which PyTorch uses for nn.LSTM and compiled code, does, so here it is chosen on all processors but
Intel's. On one Zen 5 core, 1,400 rows by weights of
256 x 10,000 take 36 ms (in chunks of up to 350 rows) instead of 79, their gradients 34 and 32 ms
instead of 76 and 74; 64, 32, 16 and 8 rows by weights of 256 x 1,024 are 2.0, 1.7, 1.5 and 1.3
times as fast. A call of oneDNN costs more, 14 to 20 µs: 4 rows by 256 x 1,024 and 64 by 64 x 256
take equally long in both, and 1 and 8 rows by 64 x 256 take 14 and 19 µs instead of 4 and 7. On an
Intel Xeon, MKL makes all networks of `torch_levels` that were tried faster.

torch.tanh also calls MKL, which takes 2.3 ns per element; sigmoid takes 0.3 ns. 64 rows of 64, 128
and 256 take 10, 19 and 38 µs, and 5, 5 and 8 µs by sigmoid; 8 rows of 128 take equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from dynbatch.harness.machine.facts import read_cpu_model

HAS_ONEDNN = bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
# MKL is the faster one on Intel's processors, and on others without AVX-512.
_HAS_MKL = bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
_HAS_AVX2_ONLY = torch.backends.cpu.get_cpu_capability() == "AVX2"
_USES_MKL = _HAS_MKL and ("Intel" in read_cpu_model() or _HAS_AVX2_ONLY)
ONEDNN = HAS_ONEDNN and not _USES_MKL
LEAST = 1 << 20  # multiplications above which oneDNN is at least as fast
LEAST_PACKED = 1 << 16  # elements of a weight above which oneDNN's own layout pays
LEAST_BY_PACKED = 1 << 19  # like LEAST, for a weight in this layout
LEAST_TANH = 1024  # elements above which tanh by sigmoid is at least as fast
# CPU time on one core of a busy machine for adding a product of 1, 4, 8, 22 and 64 rows: by
# 256 x 256 in place by MKL 8, 14, 19, 40 and 92 µs, by oneDNN in its own layout 11, 19, 33, 52 and
# 106; by 512 x 512 27, 66, 88, 174 and 375 µs, and 31, 49, 73, 138 and 348.
LEAST_FIXED = 1 << 18  # elements of a weight that is never trained
LEAST_FIXED_ROWS = 4
_MINUS_ONE = torch.tensor(-1.0)
aten = torch.ops.aten


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x weight^T + bias, (n, m), without gradients.

    Args:
        x: (n, k) rows.
        weight: (m, k), of any strides.
        bias: (m,), if any.
    """
    if ONEDNN and not x.is_cuda and x.numel() * len(weight) >= LEAST:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, make_dense(weight), bias, "none", [], ""
        )
        return result
    return functional.linear(x, weight, bias)


def make_dense(weight: Tensor) -> Tensor:
    """Return the matrix, or a copy if it has gaps, for which oneDNN uses slow generic code.

    (256, 1,100) by (1,100, 64), the latter columns of a wider array: 430 ms instead of 0.2.
    """
    if weight.is_contiguous() or weight.t().is_contiguous():
        return weight
    return weight.contiguous() if weight.stride(1) == 1 else weight.t().contiguous().t()


class Repeated:
    """Products of few rows by one weight (m, k), which is stored in oneDNN's own layout.

    4, 8, 22 and 64 rows by 256 x 1,024 take 26, 36, 73 and 157 µs instead of 45, 54, 85 and 185;
    the conversion takes 200 µs. A transposed weight gains nothing.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.packed = weight, None
        if ONEDNN and not weight.is_cuda and weight.numel() >= LEAST_PACKED:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(make_dense(weight))

    def __call__(self, x: Tensor) -> Tensor:
        """Return x weight^T, (n, m)."""
        if self.packed is None or len(x) * self.weight.numel() < LEAST_BY_PACKED:
            return multiply(x, self.weight)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")
        return result


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x weight^T + bias, with gradients."""
    result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


def apply_linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return relu(x weight^T + bias), with gradients."""
    result: Tensor = _LinearReLU.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


class FastLinear(nn.Linear):
    """nn.Linear with the faster product."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x weight^T + bias of rows (n, k)."""
        return apply_linear(x, self.weight, self.bias)


def compute_weight_gradient(dy: Tensor, x: Tensor) -> Tensor:
    """Return dy^T x, (m, k), of dy (n, m) and x (n, k)."""
    return multiply(dy.t().contiguous(), x.t())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        return multiply(dy, weight.t()), compute_weight_gradient(dy, x), dy.sum(0)


class _LinearReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        y = multiply(x, weight, bias).relu_()
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, weight, y = ctx.saved_tensors
        d = torch.ops.aten.threshold_backward(dy, y, 0)
        dx = multiply(d, weight.t()) if ctx.needs_input_grad[0] else None
        return dx, compute_weight_gradient(d, x), d.sum(0)


class FixedProduct:
    """Products by one weight (k, m) that is never trained, with a bias (m,) or none.

    The layout that oneDNN prefers is built only once.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias, self.packed = weight, bias, None
        if ONEDNN and not weight.is_cuda and weight.numel() >= LEAST_FIXED:
            self.packed = Repeated(weight.t().contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        """Return x weight + bias, (n, m), in new memory, of x (n, k)."""
        if self.packed is not None and len(x) >= LEAST_FIXED_ROWS:
            y = self.packed(x)
            return y if self.bias is None else y.add_(self.bias)
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add_to(self, y: Tensor, x: Tensor) -> Tensor:
        """Add x weight to y in place, without bias; return y."""
        if self.packed is not None and len(x) >= LEAST_FIXED_ROWS:
            return y.add_(self.packed(x))
        return y.addmm_(x, self.weight)


class SideWeights(NamedTuple):
    """Matrices for each of s sides, and one bias for all sides.

    Attributes:
        rows: matrices (m, k), in the orientation of nn.Linear.
        stacked: (s, k, m) copies of the matrices, transposed.
        bias: (m,) bias.
    """

    rows: Sequence[Tensor]
    stacked: Tensor
    bias: Tensor

    @classmethod
    def from_rows(cls, rows: Sequence[Tensor], bias: Tensor) -> SideWeights:
        return cls(rows, torch.stack([side.t() for side in rows]), bias)

    def forward(self, x: Tensor, function: Callable[..., Any], out: Tensor) -> None:
        """Write function(x weight + bias), of x (n, s, k), to out (n, s, m)."""
        if self._should_separate(x):
            for side, weight in enumerate(self.rows):
                function(multiply(x[:, side], weight, self.bias), out=out[:, side])
        else:
            result = torch.baddbmm(self.bias, x.transpose(0, 1), self.stacked)
            function(result, out=out.transpose(0, 1))

    def backward(self, d: Tensor) -> Tensor:
        """Return the gradient of x (n, s, k), given that of the products (n, s, m)."""
        if self._should_separate(d):
            sides = zip(d.unbind(1), self.rows, strict=True)
            return torch.stack([multiply(own, weight.t()) for own, weight in sides], 1)
        return torch.bmm(d.transpose(0, 1), self.stacked.transpose(1, 2)).transpose(0, 1)

    def gradients(self, d: Tensor, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the gradients of every matrix (m, k) and of the bias, over all rows at once."""
        sides = zip(d.unbind(1), x.unbind(1), strict=True)
        return [compute_weight_gradient(*side) for side in sides], d.sum((0, 1))

    def _should_separate(self, x: Tensor) -> bool:
        """Return whether one product per side is at least as fast as one call for all sides."""
        n_multiplications = len(x) * self.stacked[0].numel()
        return len(self.rows) == 1 or n_multiplications >= LEAST


def tanh(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return tanh x = 2 sigmoid(2 x) - 1, within 2e-7; out may be x."""
    if x.is_cuda or x.numel() < LEAST_TANH:
        return torch.tanh(x, out=out)
    doubled = torch.add(x, x, out=out).sigmoid_()
    return torch.add(_MINUS_ONE, doubled, alpha=2, out=doubled)


def backpropagate_tanh(dy: Tensor, y: Tensor) -> None:
    """Overwrite the gradient of y = tanh(x) with that of x."""
    aten.tanh_backward.grad_input(dy, y, grad_input=dy)


def backpropagate_sigmoid(dy: Tensor, y: Tensor) -> None:
    """Overwrite the gradient of y = sigmoid(x) with that of x."""
    aten.sigmoid_backward.grad_input(dy, y, grad_input=dy)


class Workspace:
    """Tensors by name, which are reused, and grow if necessary.

    PyTorch returns blocks above 32 MiB to the system as soon as they are freed. The next mini-batch
    would get fresh pages, which cost more than writing to them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Return the memory of a name, on the device of `like`, with arbitrary content."""
        kept = self._kept.get(name)
        if kept is None or kept.numel() < prod(shape):
            with torch.inference_mode(False):
                kept = self._kept[name] = torch.empty(prod(shape), device=like.device)
        return kept[: prod(shape)].view(shape)
