"""Parameters of lattice models as layers, whichever way the lattices are walked."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.contracts.model import Model


class Gates(nn.Module):
    """Gates of a cell: W x + b for all of them, U h for as many as read h as it is."""

    def __init__(self, n_inputs: int, h: int, n_gates: int, n_by_state: int | None = None) -> None:
        super().__init__()
        self.inputs = nn.Linear(n_inputs, n_gates * h)
        self.states = nn.Linear(h, (n_by_state or n_gates) * h, bias=False)

    def shared_names(self, path: str) -> dict[str, str]:
        """Of the module at this path, of which weights are named after it."""
        return {
            f"W_{path}": f"{path}.inputs.weight",
            f"b_{path}": f"{path}.inputs.bias",
            f"U_{path}": f"{path}.states.weight",
        }

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """All gates before their non-linearities, where all of them read h."""
        gates: Tensor = self.inputs(x) + self.states(h)
        return gates

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """W, b and U as nn.Linear has them."""
        return self.inputs.weight, self.inputs.bias, self.states.weight


class LatticeParameters(nn.Module):
    """Tables, the state before the first character, and the classifier of tags."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        sizes = model.sizes
        self.h, self.n_inputs = sizes.hidden_size, sizes.embedding_size
        self.characters = nn.Embedding(sizes.of("characters"), self.n_inputs, sparse=True)
        self.words = nn.Embedding(sizes.of("words"), self.n_inputs, sparse=True)
        self.h_0 = nn.Parameter(torch.zeros(self.h))
        self.c_0 = nn.Parameter(torch.zeros(self.h))
        self.classifier = nn.Linear(self.h, sizes.of("classes"), bias=False)
        self.SHARED = {
            "characters": "characters.weight",
            "words": "words.weight",
            "h_0": "h_0",
            "c_0": "c_0",
            "W_out": "classifier.weight",
        }
