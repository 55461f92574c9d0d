"""What both taggers are made of: an LSTM with learned first states, and the layers over words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from systems.on_torch.parts import lstm
from systems.on_torch.parts.output_layer import LossWay, OutputLayer
from systems.on_torch.parts.products import linear
from systems.on_torch.parts.recurrences import Start


class StartedLSTM(nn.Module):
    """nn.LSTM and the states (h,) in which each of its layers begins."""

    def __init__(self, n_inputs: int, h: int, layers: int = 1) -> None:
        super().__init__()
        self.lstm = lstm.lstm(n_inputs, h, layers)
        self.h_0 = nn.ParameterList(nn.Parameter(torch.zeros(h)) for _ in range(layers))
        self.c_0 = nn.ParameterList(nn.Parameter(torch.zeros(h)) for _ in range(layers))

    def shared_names(self, path: str, suffixes: Sequence[str]) -> dict[str, str]:
        """Of the module at this path, which layers' weights end with these suffixes."""
        starts = {
            f"{state}{suffix}": f"{path}.{state}.{layer}"
            for layer, suffix in enumerate(suffixes)
            for state in ("h_0", "c_0")
        }
        return starts | lstm.shared_names(f"{path}.lstm", suffixes)

    @property
    def start(self) -> Start:
        """h_0 and c_0 (layers, h)."""
        return torch.stack(list(self.h_0)), torch.stack(list(self.c_0))

    def forward(self, x: Tensor) -> Tensor:
        """h (n, h) along one sentence (n, n_inputs)."""
        states: Tensor = self.lstm(x, self.start)[0]
        return states


class TagLayer(nn.Module):
    """tanh over both directions, and the classifier of tags."""

    def __init__(self, h: int, mlp_size: int, n_classes: int, way: LossWay) -> None:
        super().__init__()
        self.mlp = nn.Linear(2 * h, mlp_size)
        self.output = OutputLayer(mlp_size, n_classes, bias=False, way=way)

    def shared_names(self, path: str) -> dict[str, str]:
        """Of the module at this path."""
        return {
            "W_tag": f"{path}.mlp.weight",
            "b_tag": f"{path}.mlp.bias",
            "W_out": f"{path}.output.weight",
        }

    def forward(self, along: Tensor, against: Tensor) -> Tensor:
        """What the classifier reads, from h of both directions at every word (n, h)."""
        return torch.tanh(
            linear(torch.cat([along, against], dim=1), self.mlp.weight, self.mlp.bias)
        )
