"""Lattice-LSTM with gates in PyTorch, as written first (Recursive) and batched by hand (Levels)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.contracts.model import Model
from systems.on_torch.parts.gated_lattice_steps import GatedSteps
from systems.on_torch.parts.lattice_levels import LatticeLevels
from systems.on_torch.parts.lattice_parameters import Gates, LatticeParameters
from systems.on_torch.parts.lattice_texts import RecursiveLattices, State


class _GatedLatticeLSTM(LatticeParameters):
    """Parameters of harness.models.gated_lattice_lstm."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.char = Gates(self.n_inputs, self.h, 4)
        self.word = Gates(self.n_inputs, self.h, 3)
        self.gate = Gates(self.n_inputs, self.h, 1)
        for name in ("char", "word", "gate"):
            self.SHARED |= getattr(self, name).shared_names(name)


class Recursive(_GatedLatticeLSTM, RecursiveLattices):
    """One lattice at a time, state by state."""

    def step(self, x: Tensor, before: State, arcs: Sequence[tuple[Tensor, State]]) -> State:
        """A character's cell, which weighs the words that end with it, if any do."""
        h, c = before
        i, o, f, g = self.char(x, h).chunk(4, dim=1)
        i, g = torch.sigmoid(i), torch.tanh(g)
        if not arcs:
            c = torch.sigmoid(f) * c + i * g
        else:
            cells = [self.word_cell(word, begin) for word, begin in arcs]
            gates = [torch.sigmoid(self.gate(x, cell)) for cell in cells]
            weights = torch.softmax(torch.stack([i, *gates]), dim=0)
            c = (weights * torch.stack([g, *cells])).sum(0)
        return torch.sigmoid(o) * torch.tanh(c), c

    def word_cell(self, x: Tensor, before: State) -> Tensor:
        """c of a word."""
        h, c = before
        i, f, g = self.word(x, h).chunk(3, dim=1)
        return torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)


class Levels(_GatedLatticeLSTM, LatticeLevels):
    """All lattices side by side."""

    steps = GatedSteps

    @property
    def start(self) -> Tensor:
        """h_0 and c_0."""
        return torch.cat([self.h_0, self.c_0])

    @property
    def weights(self) -> Sequence[Tensor]:
        """W, b and U of both cells and of the gate."""
        return *self.char.weights, *self.word.weights, *self.gate.weights


EAGER = {"gated_lattice_lstm": Recursive}
LEVELS = {"gated_lattice_lstm": Levels}
