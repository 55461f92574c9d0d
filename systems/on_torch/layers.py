"""Layers that PyTorch has not: learned first states, plain parameters, and the output layer.

The classifier and its loss are four fifths of a language model's arithmetic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.values.instances import Chain
from systems.on_torch.net import Net
from systems.on_torch.products import FixedProduct, product
from systems.plans.programs import Once

LossWay = Literal["in_place", "chunked", "whole"]
CHUNK_ROWS = 512  # of linear_cross_entropy
SLICE_ROWS = 32  # of a loss without gradients
CHUNK_BYTES = 28 << 20  # memory beyond 32 MiB would be given back, and come as fresh pages
# h_0 and c_0 (layers, h), the same for every sentence, or (layers, k, h), each one's own.
Start = tuple[Tensor, Tensor]


class StartedLSTM(nn.Module):
    """nn.LSTM and the states (h,) in which each of its layers begins.

    suffixes: of the layers' parameters; starts: of h_0 and c_0, where they differ.
    """

    def __init__(self, net: Net, suffixes: Sequence[str], starts: Sequence[str] = ()) -> None:
        super().__init__()
        self.lstm = net.lstm_of(*suffixes)
        self.h_0, self.c_0 = (
            nn.ParameterList(net.free(f"{state}{end}") for end in starts or suffixes)
            for state in ("h_0", "c_0")
        )

    @property
    def start(self) -> Start:
        """h_0 and c_0 (layers, h)."""
        return torch.stack(list(self.h_0)), torch.stack(list(self.c_0))

    def forward(self, x: Tensor) -> Tensor:
        """h (n, h) along one sentence (n, n_inputs)."""
        states: Tensor = self.lstm(x, self.start)[0]
        return states


class PlainNet(Net):
    """A network that no module of PyTorch's own fits: `self["W"]` is a parameter of the model's."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.embedding = self.table("embedding")
        for name in self.shapes:
            if name not in self.held:
                self.register_parameter(name, self.free(name))
        self._products: dict[tuple[str, int | None], FixedProduct] = {}

    def __getitem__(self, name: str) -> Tensor:
        found = self._parameters[name]
        assert found is not None
        return found

    def by(self, weight: str, bias: str | None = None, half: int | None = None) -> FixedProduct:
        """Return products by a weight that is never trained, or by one half of its rows.

        They are made in the first pass.
        """
        key = weight, half
        if key not in self._products:
            W = self[weight]
            part = W if half is None else W.chunk(2)[half]
            self._products[key] = FixedProduct(part, None if bias is None else self[bias])
        return self._products[key]


class ProgramNet(PlainNet):
    """A program's network, which makes Python numbers of every instance once."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.model, self.read = model, Once(self.listed)

    @abstractmethod
    def listed(self, chain: Chain) -> Any:
        """Return what a program holds of an instance, and what values will decide."""

    def prepare(self, chains: Sequence[Chain]) -> list[Any]:
        """Return what it holds of a mini-batch."""
        return [self.read(chain) for chain in chains]


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
            weight, bias = (self._before(p, step) for p in (self.layer.weight, self.layer.bias))
            assert weight is not None
            return functional.linear(self.hidden, weight.t(), bias)

    @staticmethod
    def _before(parameter: Tensor | None, step: float) -> Tensor | None:
        if parameter is None or parameter.grad is None:
            return parameter
        return parameter + step * parameter.grad


class OutputLayer(nn.Module):
    """Logits of classes and the summed negative log likelihood of the labels.

    weight (n_inputs, n_classes), as models have it. way: "in_place" turns logits into the gradient
    of the loss at the logits where they lie, some rows at a time, "chunked" is PyTorch's
    linear_cross_entropy over 512 rows at a time, which computes gradients in the forward pass and
    never holds all logits, "whole" its cross_entropy.

    Measured on one core of a busy machine, processor time of forward and backward, 1 400 rows of
    256 by 10 000 classes, best of 6 in turns: in_place by oneDNN (systems.on_torch.products)
    in chunks of 32, 64, 128, 256, 350, 700 and 1 400 rows 215, 163, 139, 141, 126, 121 and 117 ms
    (of which forward 44 to 70), by MKL in chunks of 64, 350 and 1 400 rows 329, 269 and 252,
    chunked 267, whole 376.
    """

    def __init__(self, n_inputs: int, n_classes: int, *, bias: bool, way: LossWay) -> None:
        super().__init__()
        self.way = way
        self.weight = nn.Parameter(torch.zeros(n_inputs, n_classes))
        self.bias = nn.Parameter(torch.zeros(n_classes)) if bias else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (n, n_classes)."""
        return functional.linear(hidden, self.weight.t(), self.bias)

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Negative log likelihood of the labels, summed over all rows of hidden (n, n_inputs)."""
        if self.way == "in_place":
            return loss_in_place(hidden, self.weight, self.bias, labels)
        if self.way == "chunked":
            return functional.linear_cross_entropy(
                hidden,
                self.weight.t(),
                labels,
                linear_bias=self.bias,
                reduction="sum",
                options=nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK_ROWS),
            )
        return functional.cross_entropy(self(hidden), labels, reduction="sum")

    def late(self, hidden: Tensor) -> LateOutputs:
        """The logits, for who asks."""
        return LateOutputs(self, hidden.detach())


def output_layer(net: Net, bias: str | None, way: LossWay) -> OutputLayer:
    """Make the classifier W_out of a network."""
    layer = OutputLayer(*net.shapes["W_out"], bias=bias is not None, way=way)
    net.hold("W_out", layer.weight)
    if layer.bias is not None and bias is not None:
        net.hold(bias, layer.bias)
    return layer


def to_loss_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Turn logits (n, classes) into the gradient at them, in place; the losses (n, 1)."""
    picked, largest = scores.gather(1, labels), scores.amax(1, keepdim=True)
    torch.softmax(scores, 1, out=scores)
    losses = largest - scores.amax(1, keepdim=True).log() - picked
    scores.scatter_add_(1, labels, scores.new_full((1, 1), -1.0).expand_as(labels))
    return losses


def summed_losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Of logits (n, classes), without gradients; on a CPU with memory for some rows at a time.

    Measured on one core of a busy machine, processor time, 700 rows by 10 000 classes: in slices of
    16, 32, 64 and 700 rows 4.3, 4.2, 4.1 and 4.1 ms; to_loss_gradient 5.0.
    """
    rows = max(1, len(scores)) if scores.is_cuda else SLICE_ROWS
    slices = zip(torch.split(scores, rows), torch.split(labels, rows), strict=True)
    losses = [functional.cross_entropy(*some, reduction="sum") for some in slices]
    return torch.stack(losses).sum()


def loss_in_place(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """The summed loss; what its derivative needs is made in the same pass over the logits."""
    loss: Tensor = _LossInPlace.apply(hidden, weight, bias, labels)  # type: ignore[no-untyped-call]
    return loss


class _LossInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, labels):  # type: ignore[no-untyped-def]
        scores = Scores(weight, bias, keep=not torch.is_inference_mode_enabled())
        loss = scores.add(hidden, labels)
        ctx.save_for_backward(hidden, weight)
        ctx.scores = scores
        return loss

    @staticmethod
    def backward(ctx, dloss):  # type: ignore[no-untyped-def]
        hidden, weight = ctx.saved_tensors
        return (*ctx.scores.gradients(hidden, weight, dloss), None)


class Scores:
    """Losses, chunk after chunk of rows; keep: whether `gradients` follows, of which logits' stay.

    Under inference_mode it cannot. What a Function's inputs need does not tell: weights always do.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, keep: bool) -> None:
        self.columns, self.bias, self.keep = weight.t(), bias, keep
        self.chunks: list[Tensor] = []
        self.most_rows = max(1, CHUNK_BYTES // (weight.element_size() * weight.shape[1]))

    def add(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Summed loss of more rows (n, n_inputs)."""
        losses = []
        for rows, right in zip(
            torch.split(hidden, self.most_rows),
            torch.split(labels, self.most_rows),
            strict=True,
        ):
            chunk = product(rows, self.columns, self.bias)
            if self.keep:
                losses.append(to_loss_gradient(chunk, right[:, None]).sum())
                self.chunks.append(chunk)
            else:
                losses.append(summed_losses(chunk, right))
        return torch.stack(losses).sum()

    def gradients(
        self, hidden: Tensor, weight: Tensor, dloss: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of hidden, which is that of all rows in their order, of weight, and of bias."""
        dhidden, dweight, dbias = [], None, None
        chunks = self.joined()
        parts = torch.split(hidden * dloss, [len(chunk) for chunk in chunks])
        for chunk, rows in zip(chunks, parts, strict=True):
            dhidden.append(product(chunk, weight))
            more = product(rows.t().contiguous(), chunk.t())
            dweight = more if dweight is None else dweight.add_(more)
            if self.bias is not None:
                total = chunk.sum(0)
                dbias = total if dbias is None else dbias.add_(total)
        assert dweight is not None
        return torch.cat(dhidden).mul_(dloss), dweight, None if dbias is None else dbias * dloss

    def joined(self) -> list[Tensor]:
        """Small chunks, such as a decoder's steps, joined, so that products are large."""
        groups: list[list[Tensor]] = []
        for chunk in self.chunks:
            if groups and sum(map(len, groups[-1])) + len(chunk) <= self.most_rows:
                groups[-1].append(chunk)
            else:
                groups.append([chunk])
        self.chunks = []
        return [torch.cat(group) if len(group) > 1 else group[0] for group in groups]
