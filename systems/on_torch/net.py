"""Networks that map the model's parameters to PyTorch's, and how they run instances or batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from dynbatch.harness.contracts.model import Model
from dynbatch.systems.plans.trees import invert_permutation

_OF_LSTM = {"W": "weight_ih", "U": "weight_hh", "b": "bias_ih"}


class HeldParameter(NamedTuple):
    """Parameter in PyTorch's form.

    Attributes:
        parameter: the parameter.
        is_turned: whether it is the transpose of the model's matrix.
    """

    parameter: nn.Parameter
    is_turned: bool

    def as_model(self, values: Tensor) -> Tensor:
        """Return a view of the parameter, or of its gradient, in the model's orientation."""
        return values.T if self.is_turned else values


class Net(nn.Module):
    """Module whose layers have the sizes of a model's parameters.

    Attributes:
        shapes: shapes of the model's parameters, by name.
        held: PyTorch parameters, by the model's names.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.shapes = {name: spec.shape for name, spec in model.parameters.items()}
        self.held: dict[str, HeldParameter] = {}

    def hold(self, name: str, parameter: nn.Parameter, *, is_turned: bool = False) -> nn.Parameter:
        """Register the parameter that corresponds to a name of the model."""
        self.held[name] = HeldParameter(parameter, is_turned)
        return parameter

    def make_parameter(self, name: str) -> nn.Parameter:
        """Create a parameter that belongs to no layer, in the model's orientation."""
        return self.hold(name, nn.Parameter(torch.zeros(self.shapes[name])))

    def make_table(self, name: str, *, sparse: bool = True) -> nn.Embedding:
        """Create an embedding table.

        Args:
            sparse: whether its gradient contains only looked-up rows.
        """
        n_rows, width = self.shapes[name]
        table = nn.Embedding(n_rows, width, sparse=sparse)
        self.hold(name, table.get_parameter("weight"))
        return table

    def make_linear(
        self, weight: str, bias: str | None = None, kind: type[nn.Linear] = nn.Linear
    ) -> nn.Linear:
        """Create a linear layer, which stores the transpose of the model's matrix."""
        n_inputs, n_outputs = self.shapes[weight]
        layer = kind(n_inputs, n_outputs, bias=bias is not None)
        self.hold(weight, layer.get_parameter("weight"), is_turned=True)
        if bias is not None:
            self.hold(bias, layer.bias)
        return layer

    def make_lstm(self, *suffixes: str) -> nn.LSTM:
        """Create an LSTM whose layers have the parameters W, U and b with these suffixes."""
        n_inputs, width = self.shapes[f"W{suffixes[0]}"][0], self.shapes[f"U{suffixes[0]}"][0]
        module = nn.LSTM(n_inputs, width, len(suffixes))
        for layer, suffix in enumerate(suffixes):
            self._hold_cell(module, suffix, f"_l{layer}")
        return module

    def make_lstm_cell(self, suffix: str) -> nn.LSTMCell:
        """Create an LSTM cell with the parameters W, U and b with this suffix."""
        cell = nn.LSTMCell(self.shapes[f"W{suffix}"][0], self.shapes[f"U{suffix}"][0])
        self._hold_cell(cell, suffix, "")
        return cell

    def _hold_cell(self, module: nn.RNNBase | nn.RNNCellBase, suffix: str, end: str) -> None:
        """Register the weights and one bias; the bias of h is zero and never trained."""
        for letter, name in _OF_LSTM.items():
            own = module.get_parameter(f"{name}{end}")
            self.hold(f"{letter}{suffix}", own, is_turned=own.ndim == 2)
        module.get_parameter(f"bias_hh{end}").requires_grad_(False).zero_()


def score_labels(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed negative log likelihood of the labels, and the scores (n, n_classes)."""
    return functional.cross_entropy(scores, labels, reduction="sum"), scores


class OneByOne(Net, ABC):
    """Network that runs instance by instance, as a first version is written."""

    @abstractmethod
    def prepare(self, instances: Sequence[Any]) -> Any:
        """Return the data that a plain training loop has of a mini-batch; untimed."""

    @abstractmethod
    def yield_scores(self, batch: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the scores and labels of every instance, or of every step of one."""

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the summed loss, and the scores in canonical order."""
        losses, outputs = [], []
        for scores, labels in self.yield_scores(batch):
            outputs.append(scores)
            losses.append(functional.cross_entropy(scores, labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)


class Batched(Net, ABC):
    """Manually batched network: `forward` runs a plan."""

    def prepare(self, instances: Sequence[Any]) -> Sequence[Any]:
        """Return the instances unchanged, because planning is timed."""
        return instances

    @abstractmethod
    def plan(self, instances: Sequence[Any], device: torch.device) -> Any:
        """Plan a mini-batch in NumPy or Python; timed."""

    def find_canonical_rows(self, plan: Any) -> NDArray[np.integer] | None:
        """Return the row of every output in canonical order; None if the rows are in this order."""
        return None


class BatchedVertices(Batched):
    """Manually batched network whose plan has `order`, the vertex of every row."""

    def find_canonical_rows(self, plan: Any) -> NDArray[np.integer]:
        return invert_permutation(plan.order)
