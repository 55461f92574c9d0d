"""Networks that know which of the model's parameters they hold, and how they are run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model

_OF_LSTM = {"W": "weight_ih", "U": "weight_hh", "b": "bias_ih"}


class Held(NamedTuple):
    """A parameter as PyTorch has it; is_turned: a matrix that the model has the other way round."""

    parameter: nn.Parameter
    is_turned: bool

    def as_model(self, values: Tensor) -> Tensor:
        """Return a view of the parameter, or of its gradient, as the model has it."""
        return values.T if self.is_turned else values


class Net(nn.Module):
    """Modules of PyTorch's own, of the sizes of a model's parameters.

    held: the model's parameters by name. Its methods make modules that hold some of them.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.shapes = {name: spec.shape for name, spec in model.parameters.items()}
        self.held: dict[str, Held] = {}

    def hold(self, name: str, parameter: nn.Parameter, *, is_turned: bool = False) -> nn.Parameter:
        """Note which parameter is the model's one of this name."""
        self.held[name] = Held(parameter, is_turned)
        return parameter

    def free(self, name: str) -> nn.Parameter:
        """Make a parameter that belongs to no layer, as the model has it."""
        return self.hold(name, nn.Parameter(torch.zeros(self.shapes[name])))

    def table(self, name: str, *, sparse: bool = True) -> nn.Embedding:
        """Make a table of vectors; sparse: whether its gradient has looked-up rows alone."""
        n_rows, width = self.shapes[name]
        table = nn.Embedding(n_rows, width, sparse=sparse)
        self.hold(name, table.get_parameter("weight"))
        return table

    def linear(
        self, weight: str, bias: str | None = None, kind: type[nn.Linear] = nn.Linear
    ) -> nn.Linear:
        """Make a layer, which holds its matrix the other way round."""
        n_inputs, n_outputs = self.shapes[weight]
        layer = kind(n_inputs, n_outputs, bias=bias is not None)
        self.hold(weight, layer.get_parameter("weight"), is_turned=True)
        if bias is not None:
            self.hold(bias, layer.bias)
        return layer

    def lstm_of(self, *suffixes: str, reverse: Sequence[str] = ()) -> nn.LSTM:
        """Make an LSTM whose layers have the parameters W, U and b with these suffixes.

        reverse: suffixes of the layers that read from the last word to the first.
        """
        n_inputs, width = self.shapes[f"W{suffixes[0]}"][0], self.shapes[f"U{suffixes[0]}"][0]
        module = nn.LSTM(n_inputs, width, len(suffixes), bidirectional=bool(reverse))
        for layer, suffix in enumerate(suffixes):
            self._hold_cell(module, suffix, f"_l{layer}")
        for layer, suffix in enumerate(reverse):
            self._hold_cell(module, suffix, f"_l{layer}_reverse")
        return module

    def lstm_cell(self, suffix: str) -> nn.LSTMCell:
        """Make a cell with the parameters W, U and b with this suffix."""
        cell = nn.LSTMCell(self.shapes[f"W{suffix}"][0], self.shapes[f"U{suffix}"][0])
        self._hold_cell(cell, suffix, "")
        return cell

    def _hold_cell(self, module: nn.RNNBase | nn.RNNCellBase, suffix: str, end: str) -> None:
        """Hold weights and one bias; the other, of h, is zero and never trained."""
        for letter, name in _OF_LSTM.items():
            own = module.get_parameter(f"{name}{end}")
            self.hold(f"{letter}{suffix}", own, is_turned=own.ndim == 2)
        module.get_parameter(f"bias_hh{end}").requires_grad_(False).zero_()


class OneByOne(Net, ABC):
    """A network as written first: instance by instance."""

    @abstractmethod
    def prepare(self, instances: Sequence[Any]) -> Any:
        """Return what a plain training loop holds of a mini-batch; untimed."""

    @abstractmethod
    def scored(self, batch: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield scores and right labels of every instance, or of every step of one."""

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Summed loss, scores in canonical order."""
        losses, outputs = [], []
        for scores, labels in self.scored(batch):
            outputs.append(scores)
            losses.append(functional.cross_entropy(scores, labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)


class Batched(Net, ABC):
    """A network that is batched by hand: `forward` computes a plan."""

    def prepare(self, instances: Sequence[Any]) -> Sequence[Any]:
        """Return the instances as they are; planning is timed."""
        return instances

    @abstractmethod
    def plan(self, instances: Sequence[Any], device: torch.device) -> Any:
        """Plan a mini-batch, in NumPy or Python; timed."""

    def canonical_rows(self, plan: Any) -> NDArray[np.integer] | None:
        """Return the row of every output in canonical order; None: they are in it."""
        return None
