"""NestedRNN in PyTorch, one instance at a time: each outer step waits for the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from harness.contracts.model import Model
from harness.models.nested_rnn import NestedRNN
from harness.values.instances import Chain
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.sentences import tensor


class Instance(NamedTuple):
    """The input's row, the label of each outer step, and how often the inner loops run."""

    word: Tensor
    labels: Tensor
    loops: list[int]


class Recursive(PlainParameters):
    """Rows (1, h) for states."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        assert isinstance(model, NestedRNN)
        self.model = model

    def prepare(self, sentences: Sequence[Chain]) -> list[Instance]:
        """Tensors on the device, and the loops that will be taken."""
        device = self.embedding.weight.device
        found = []
        for sentence in sentences:
            loops = self.model.loops(sentence)
            labels = tensor(sentence.labels[:1].repeat(len(loops)), device)
            found.append(Instance(tensor(sentence.words[:1], device), labels, loops))
        return found

    def forward(self, instances: list[Instance]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all outer steps."""
        losses, outputs = [], []
        for instance in instances:
            scores = torch.cat(self._steps(instance)) @ self["W_out"]
            outputs.append(scores)
            losses.append(functional.cross_entropy(scores, instance.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def _steps(self, instance: Instance) -> list[Tensor]:
        states, b, U = [self.embedding(instance.word)], self["b"], self["U"]
        for n in instance.loops:
            states[-1][0, 0].item()  # what decides is drawn, but it is waited for
            x = states[-1]
            for _ in range(n):
                x = torch.tanh(torch.addmm(b, x, U))
            states.append(self._outer(x, states[-1]))
        return states[1:]

    def _outer(self, x: Tensor, h: Tensor) -> Tensor:
        x_r, x_z, x_n = torch.addmm(self["b_gates"], x, self["W_x"]).chunk(3, dim=1)
        h_r, h_z = (h @ self["W_h"]).chunk(2, dim=1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(torch.addmm(x_n, r * h, self["U_n"]))
        return torch.lerp(n, h, z)
