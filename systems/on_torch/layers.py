"""Layers that PyTorch does not have: learned initial states, plain parameters, the output layer.

The classifier and its loss are four fifths of a language model's arithmetic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_torch.net import Net
from dynbatch.systems.on_torch.products import FixedProduct, multiply
from dynbatch.systems.plans.programs import Once

LossWay = Literal["in_place", "whole"]
LateOutputs = Callable[[], Tensor]  # computes outputs that a run does not store; untimed
SLICE_BYTES = 5 << 18  # of scores per slice of a loss without gradients: 32 rows of 10,000
CHUNK_BYTES = 28 << 20  # blocks above 32 MiB return to the system, and come as fresh pages
# h_0 and c_0: (layers, h) for all sentences, or (layers, k, h) for each of k sentences.
Start = tuple[Tensor, Tensor]


class StartedLSTM(nn.Module):
    """nn.LSTM with learned initial states (h,) of each layer.

    Args:
        suffixes: suffixes of the layers' parameter names.
        starts: suffixes of the names of h_0 and c_0, if they differ.
    """

    def __init__(self, net: Net, suffixes: Sequence[str], starts: Sequence[str] = ()) -> None:
        super().__init__()
        self.lstm = net.make_lstm(*suffixes)
        self.h_0, self.c_0 = (
            nn.ParameterList(net.make_parameter(f"{state}{end}") for end in starts or suffixes)
            for state in ("h_0", "c_0")
        )

    @property
    def start(self) -> Start:
        """Initial states h_0 and c_0, (layers, h)."""
        return torch.stack(list(self.h_0)), torch.stack(list(self.c_0))


class PlainNet(Net):
    """Network without fitting PyTorch modules: `self["W"]` is the model's parameter W."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.embedding = self.make_table("embedding")
        for name in self.shapes:
            if name not in self.held:
                self.register_parameter(name, self.make_parameter(name))
        self._products: dict[tuple[str, int | None], FixedProduct] = {}

    def __getitem__(self, name: str) -> Tensor:
        parameter = self._parameters[name]
        assert parameter is not None
        return parameter

    def get_product(
        self, weight: str, bias: str | None = None, half: int | None = None
    ) -> FixedProduct:
        """Return the product with a weight that is never trained, or with half of its rows.

        Products are built in the first pass.

        Args:
            half: 0 or 1 for the first or second half of the rows; None: all rows.
        """
        key = weight, half
        if key not in self._products:
            W = self[weight]
            part = W if half is None else W.chunk(2)[half]
            self._products[key] = FixedProduct(part, None if bias is None else self[bias])
        return self._products[key]


class ProgramNet(PlainNet):
    """Network of a program, which converts every instance to Python numbers once."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.model, self.read = model, Once(self.convert_chain)

    @abstractmethod
    def convert_chain(self, chain: Chain) -> Any:
        """Return an instance's data, and the decisions that computed values will make."""

    def prepare(self, chains: Sequence[Chain]) -> list[Any]:
        return [self.read(chain) for chain in chains]


class OutputLayer(nn.Module):
    """Logits of classes, and the summed negative log likelihood of the labels.

    The weight has shape (n_inputs, n_classes), as in models. Methods (`way`): "in_place" overwrites
    logits with the gradient of the loss, some rows at a time; "whole" is PyTorch's cross_entropy.

    CPU time of forward and backward on one core of a busy machine, 1,400 rows of 256 by 10,000
    classes, best of 6 interleaved repetitions: in_place by oneDNN
    (dynbatch.systems.on_torch.products) in chunks of 32, 64, 128, 256, 350, 700 and 1,400 rows 215,
    163, 139, 141, 126, 121 and 117 ms (forward: 44 to 70), by MKL in chunks of 64, 350 and 1,400
    rows 329, 269 and 252 ms, whole 376 ms; PyTorch's linear_cross_entropy, 512 rows at a time, 267.
    """

    def __init__(self, n_inputs: int, n_classes: int, *, bias: bool, way: LossWay) -> None:
        super().__init__()
        self.way = way
        self.weight = nn.Parameter(torch.zeros(n_inputs, n_classes))
        self.bias = nn.Parameter(torch.zeros(n_classes)) if bias else None

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.weight.t(), self.bias)

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Return the summed negative log likelihood of the labels of all rows (n, n_inputs)."""
        if self.way == "in_place":
            return compute_loss_in_place(hidden, self.weight, self.bias, labels)
        return functional.cross_entropy(self(hidden), labels, reduction="sum")

    def defer_logits(self, hidden: Tensor) -> LateOutputs:
        return partial(self, hidden.detach())


def make_output_layer(net: Net, bias: str | None, way: LossWay) -> OutputLayer:
    """Build the classifier W_out of a network."""
    layer = OutputLayer(*net.shapes["W_out"], bias=bias is not None, way=way)
    net.hold("W_out", layer.weight)
    if layer.bias is not None and bias is not None:
        net.hold(bias, layer.bias)
    return layer


def to_loss_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Overwrite logits (n, classes) with their gradient; return the losses (n, 1)."""
    picked, largest = scores.gather(1, labels), scores.amax(1, keepdim=True)
    torch.softmax(scores, 1, out=scores)
    losses = (largest - picked) - scores.amax(1, keepdim=True).log()
    scores.scatter_add_(1, labels, scores.new_full((1, 1), -1.0).expand_as(labels))
    return losses


def sum_losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the summed loss of logits (n, classes), without gradients.

    On a CPU, the rows are processed in slices, to save memory. CPU time on one core of a busy
    machine, 700 rows by 10,000 classes: 4.3, 4.2, 4.1 and 4.1 ms in slices of 16, 32, 64 and 700
    rows; to_loss_gradient 5.0 ms. A slice of a step with few classes takes 25 µs more.
    """
    per_row = scores.element_size() * scores.shape[1]
    rows = max(1, len(scores) if scores.is_cuda else SLICE_BYTES // per_row)
    slices = zip(torch.split(scores, rows), torch.split(labels, rows), strict=True)
    return add_losses([functional.cross_entropy(*some, reduction="sum") for some in slices])


def add_losses(losses: list[Tensor]) -> Tensor:
    return losses[0] if len(losses) == 1 else torch.stack(losses).sum()


def compute_loss_in_place(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor
) -> Tensor:
    """Return the summed loss; the same pass over the logits prepares the derivative."""
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
    """Losses of chunks of rows.

    Args:
        weight: weight of the classifier.
        bias: its bias, if any.
        keep: whether `gradients` follows, for which the gradients of the logits are stored. It
            cannot follow under inference_mode. `needs_input_grad` of a Function does not decide
            it, because it is always true for weights.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, keep: bool) -> None:
        self.columns, self.bias, self.keep = weight.t(), bias, keep
        self.chunks: list[Tensor] = []
        self.most_rows = max(1, CHUNK_BYTES // (weight.element_size() * weight.shape[1]))

    def add(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Add rows (n, n_inputs), and return their summed loss."""
        losses = []
        for rows, right in zip(
            torch.split(hidden, self.most_rows),
            torch.split(labels, self.most_rows),
            strict=True,
        ):
            chunk = multiply(rows, self.columns, self.bias)
            if self.keep:
                losses.append(to_loss_gradient(chunk, right[:, None]).sum())
                self.chunks.append(chunk)
            else:
                losses.append(sum_losses(chunk, right))
        return add_losses(losses)

    def gradients(
        self, hidden: Tensor, weight: Tensor, dloss: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the gradients of hidden (all rows in order), weight and bias."""
        dhidden, dweight, dbias = [], None, None
        chunks = self.join_chunks()
        parts = torch.split(hidden * dloss, [len(chunk) for chunk in chunks])
        for chunk, rows in zip(chunks, parts, strict=True):
            dhidden.append(multiply(chunk, weight))
            more = multiply(rows.t().contiguous(), chunk.t())
            dweight = more if dweight is None else dweight.add_(more)
            if self.bias is not None:
                total = chunk.sum(0)
                dbias = total if dbias is None else dbias.add_(total)
        assert dweight is not None
        return torch.cat(dhidden).mul_(dloss), dweight, None if dbias is None else dbias * dloss

    def join_chunks(self) -> list[Tensor]:
        """Return the chunks; small ones, such as a decoder's steps, are joined to larger ones."""
        groups: list[list[Tensor]] = []
        for chunk in self.chunks:
            if groups and sum(map(len, groups[-1])) + len(chunk) <= self.most_rows:
                groups[-1].append(chunk)
            else:
                groups.append([chunk])
        self.chunks = []
        return [torch.cat(group) if len(group) > 1 else group[0] for group in groups]
