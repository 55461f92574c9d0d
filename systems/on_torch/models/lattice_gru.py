"""Lattice-GRU in PyTorch, as written first (Recursive) and as batched by hand (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from harness.contracts.model import Model
from systems.on_torch.parts.lattice_cells import GRUCells
from systems.on_torch.parts.lattice_levels import LatticeLevels
from systems.on_torch.parts.lattice_parameters import Gates, LatticeParameters
from systems.on_torch.parts.lattice_steps import SummedSteps
from systems.on_torch.parts.lattice_texts import RecursiveLattices, State


class _GRUGates(Gates):
    """Gates r, z and n, the last of which reads h times r."""

    def __init__(self, n_inputs: int, h: int) -> None:
        super().__init__(n_inputs, h, 3, 2)
        self.reset = nn.Linear(h, h, bias=False)

    def shared_names(self, path: str) -> dict[str, str]:
        """See Gates."""
        return super().shared_names(path) | {f"U_n_{path}": f"{path}.reset.weight"}

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """W, b, U and U_n."""
        return *super().weights, self.reset.weight


class _LatticeGRU(LatticeParameters):
    """Parameters of harness.models.lattice_gru."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.char, self.word = (_GRUGates(self.n_inputs, self.h) for _ in range(2))
        self.SHARED |= self.char.shared_names("char") | self.word.shared_names("word")


class Recursive(_LatticeGRU, RecursiveLattices):
    """One lattice at a time, state by state."""

    def step(self, x: Tensor, before: State, arcs: Sequence[tuple[Tensor, State]]) -> State:
        """The cells of a character and of the words that end with it, added up."""
        cells = [self.cell(self.char, x, before)]
        cells += [self.cell(self.word, word, begin) for word, begin in arcs]
        return (torch.stack(cells).sum(0),)

    def cell(self, gates: _GRUGates, x: Tensor, before: State) -> Tensor:
        """h behind one arc."""
        (h,) = before
        x_r, x_z, x_n = gates.inputs(x).chunk(3, dim=1)
        h_r, h_z = gates.states(h).chunk(2, dim=1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + gates.reset(r * h))
        return z * h + (1 - z) * n

    def start(self) -> State:
        """h before the first character; nothing reads c_0."""
        return (self.h_0[None],)


class Levels(_LatticeGRU, LatticeLevels):
    """All lattices side by side."""

    steps = partial(SummedSteps, GRUCells)

    @property
    def start(self) -> Tensor:
        """h_0."""
        return self.h_0

    @property
    def weights(self) -> Sequence[Tensor]:
        """W, b, U and U_n of both cells."""
        return *self.char.weights, *self.word.weights


EAGER = {"lattice_gru": Recursive}
LEVELS = {"lattice_gru": Levels}
