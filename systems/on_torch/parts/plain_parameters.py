"""Parameters named and shaped as the model has them, tables as embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.contracts.model import Model

TABLE = "embedding"


class PlainParameters(nn.Module):
    """For networks that no module of PyTorch's own fits: `self["W"]` is a parameter."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        shapes = {name: spec.shape for name, spec in model.parameters.items()}
        n_rows, width = shapes.pop(TABLE)
        self.embedding = nn.Embedding(n_rows, width, sparse=True)
        self.SHARED = {TABLE: f"{TABLE}.weight"} | {name: name for name in shapes}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def __getitem__(self, name: str) -> Tensor:
        found = self._parameters[name]
        assert found is not None
        return found
