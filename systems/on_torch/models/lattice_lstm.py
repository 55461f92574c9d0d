"""Lattice-LSTM in PyTorch, as written first (Recursive) and as batched by hand (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from harness.contracts.model import Model
from systems.on_torch.parts.lattice_cells import LSTMCells
from systems.on_torch.parts.lattice_levels import LatticeLevels
from systems.on_torch.parts.lattice_parameters import Gates, LatticeParameters
from systems.on_torch.parts.lattice_steps import SummedSteps
from systems.on_torch.parts.lattice_texts import RecursiveLattices, State


class _LatticeLSTM(LatticeParameters):
    """Parameters of harness.models.lattice_lstm."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.char, self.word = (Gates(self.n_inputs, self.h, 4) for _ in range(2))
        self.SHARED |= self.char.shared_names("char") | self.word.shared_names("word")


class Recursive(_LatticeLSTM, RecursiveLattices):
    """One lattice at a time, state by state."""

    def step(self, x: Tensor, before: State, arcs: Sequence[tuple[Tensor, State]]) -> State:
        """The cells of a character and of the words that end with it, added up."""
        cells = [self.cell(self.char, x, before)]
        cells += [self.cell(self.word, word, begin) for word, begin in arcs]
        h, c = (torch.stack(states).sum(0) for states in zip(*cells, strict=True))
        return h, c

    def cell(self, gates: Gates, x: Tensor, before: State) -> State:
        """State behind one arc."""
        h, c = before
        f, i, o, g = gates(x, h).chunk(4, dim=1)
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        return torch.sigmoid(o) * torch.tanh(c), c


class Levels(_LatticeLSTM, LatticeLevels):
    """All lattices side by side."""

    steps = partial(SummedSteps, LSTMCells)

    @property
    def start(self) -> Tensor:
        """h_0 and c_0."""
        return torch.cat([self.h_0, self.c_0])

    @property
    def weights(self) -> Sequence[Tensor]:
        """W, b and U of both cells."""
        return *self.char.weights, *self.word.weights


EAGER = {"lattice_lstm": Recursive}
LEVELS = {"lattice_lstm": Levels}
