"""Batched operators and matmuls in PyTorch, each writing into given memory.

Matmuls with shapes that BLAS handles badly are transposed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from dynbatch.harness.vertex.operators import LAYER_NORM_EPSILON, Node

aten = torch.ops.aten


def _add_bias(node: Node, x: list[Tensor], out: Tensor) -> None:
    if len(node.shape) == 1:
        torch.add(x[0], x[1][node.index : node.index + node.width], out=out)
    else:
        torch.add(x[0].view(-1, *node.shape), x[1], out=out.view(-1, *node.shape))


def _apply(node: Node, x: list[Tensor], out: Tensor) -> None:
    matrix = x[1].view(-1, x[0].shape[1], out.shape[1])
    torch.bmm(x[0][:, None, :], matrix, out=out[:, None, :])


def _apply_transposed(node: Node, x: list[Tensor], out: Tensor) -> None:
    matrix = x[1].view(-1, out.shape[1], x[0].shape[1])
    torch.bmm(matrix, x[0][:, :, None], out=out[:, :, None])


def _multiply_outer(node: Node, x: list[Tensor], out: Tensor) -> None:
    torch.mul(x[0][:, :, None], x[1][:, None, :], out=out.view(-1, *node.shape))


def _pick(node: Node, x: list[Tensor], out: Tensor) -> None:
    logits, label = x
    out.copy_(functional.cross_entropy(logits, label, reduction="none")[:, None])


def _compute_softmax_gradient(node: Node, x: list[Tensor], out: Tensor) -> None:
    logits, label, dy = x
    torch.softmax(logits, 1, out=out)
    out.scatter_add_(1, label[:, None], out.new_full((len(label), 1), -1.0))
    out.mul_(dy)


def _score_heads(node: Node, x: list[Tensor], out: Tensor) -> None:
    n_heads, (n_rows, n_weights) = node.index, node.shape
    q = _split_heads(x[0], n_rows // n_heads, n_heads)
    k = _split_heads(x[1], n_weights, n_heads)
    _reshape_rows(out, n_heads, -1, n_weights).copy_(q @ k.transpose(2, 3))


def _mix_heads(node: Node, x: list[Tensor], out: Tensor) -> None:
    n_heads, (n_rows, width) = node.index, node.shape
    p = _reshape_rows(x[0], n_heads, n_rows, -1)
    v = _split_heads(x[1], x[1].shape[1] // width, n_heads)
    _split_heads(out, n_rows, n_heads).copy_(p @ v)


def _reshape_rows(x: Tensor, *shape: int) -> Tensor:
    """Reshape each vertex's columns; the rows of vertices need not be adjacent."""
    rows: Tensor = x.unflatten(1, shape)  # type: ignore[no-untyped-call]
    return rows


def _split_heads(x: Tensor, n_rows: int, n_heads: int) -> Tensor:
    """Return a view with separate heads (n, n_heads, n_rows, columns per head)."""
    return _reshape_rows(x, n_rows, n_heads, -1).transpose(1, 2)


def _compute_softmax(node: Node, x: list[Tensor], out: Tensor) -> None:
    width = node.shape[-1]
    torch.softmax(_reshape_rows(x[0], -1, width), 2, out=_reshape_rows(out, -1, width))


def _apply_layer_norm(node: Node, x: list[Tensor], out: Tensor) -> None:
    rows = _reshape_rows(x[0], -1, node.shape[-1])
    normal = functional.layer_norm(rows, node.shape[-1:], x[1], eps=LAYER_NORM_EPSILON)
    _reshape_rows(out, -1, node.shape[-1]).copy_(normal)


# Operators with one result per vertex or edge, as out-variants: (node, operands, out).
KERNELS: dict[str, Callable[[Node, list[Tensor], Tensor], object]] = {
    "add": lambda node, x, out: torch.add(x[0], x[1], out=out),
    # Stacked first, because `out` may be the memory of any operand.
    "sum": lambda node, x, out: torch.sum(torch.stack(x), 0, out=out),
    "sub": lambda node, x, out: torch.sub(x[0], x[1], out=out),
    "mul": lambda node, x, out: torch.mul(x[0], x[1], out=out),
    "div": lambda node, x, out: torch.div(x[0], x[1], out=out),
    "bias": _add_bias,
    "neg": lambda node, x, out: torch.neg(x[0], out=out),
    "scale": lambda node, x, out: torch.mul(x[0], node.value, out=out),
    "shift": lambda node, x, out: torch.add(x[0], node.value, out=out),
    "sigmoid": lambda node, x, out: torch.sigmoid(x[0], out=out),
    "tanh": lambda node, x, out: torch.tanh(x[0], out=out),
    "relu": lambda node, x, out: torch.clamp_min(x[0], 0.0, out=out),
    "exp": lambda node, x, out: torch.exp(x[0], out=out),
    "log": lambda node, x, out: torch.log(x[0], out=out),
    "square": lambda node, x, out: torch.mul(x[0], x[0], out=out),
    "sqrt": lambda node, x, out: torch.sqrt(x[0], out=out),
    "sigmoid_gradient": lambda node, x, out: aten.sigmoid_backward.grad_input(
        x[0], x[1], grad_input=out
    ),
    "tanh_gradient": lambda node, x, out: aten.tanh_backward.grad_input(x[0], x[1], grad_input=out),
    "relu_gradient": lambda node, x, out: aten.threshold_backward.grad_input(
        x[0], x[1], 0.0, grad_input=out
    ),
    "zeros": lambda node, x, out: out.zero_(),
    "ones": lambda node, x, out: out.fill_(1.0),
    "lookup": lambda node, x, out: torch.index_select(x[0], 0, x[1], out=out),
    "apply": _apply,
    "apply_transposed": _apply_transposed,
    "outer": _multiply_outer,
    "score_heads": _score_heads,
    "mix_heads": _mix_heads,
    "softmax": _compute_softmax,
    "layer_norm": _apply_layer_norm,
    "sum_elements": lambda node, x, out: torch.sum(x[0], 1, keepdim=True, out=out),
    "expand": lambda node, x, out: out.copy_(x[0].expand_as(out)),
    "pick_neg_log_softmax": _pick,
    "softmax_minus_one_hot": _compute_softmax_gradient,
}


# Below this width, MKL's row-major matmul is slow: 2400 x 256 by 256 x 5 takes 920 us on one Zen 4
# core, and 170 us transposed; x^T dy of the same sizes takes 1330 us and 140 us.
THIN = 16


def multiply(x: Tensor, weight: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
    """Compute out = x W, or out += x W; shapes (n, k), (k, m), (n, m)."""
    if accumulate:
        out.addmm_(x, weight)
    elif weight.shape[1] < THIN and x.device.type == "cpu":
        out.copy_(torch.mm(weight.t(), x.t()).t())
    else:
        torch.mm(x, weight, out=out)


def sum_outer(x: Tensor, dy: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
    """Compute out = x^T dy, summed over the rows, or out += it; shapes (n, k), (n, m), (k, m)."""
    if accumulate:
        out.addmm_(x.t(), dy)
    elif dy.shape[1] < THIN and x.device.type == "cpu":
        out.copy_(torch.mm(dy.t().contiguous(), x).t())
    else:
        torch.mm(x.t(), dy, out=out)


def multiply_rows(
    x: Tensor, weight: Tensor, out: Tensor, bias: Tensor | None, *, accumulate: bool
) -> None:
    """Compute out = x weight for one matrix x per vertex, optionally + bias, or add it to out.

    x is (n, r * k), weight (k, m), out (n, r * m). One matmul computes all n * r rows if the rows
    of vertices are consecutive in memory; otherwise there is one matmul per vertex.
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
