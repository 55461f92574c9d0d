"""Lattices in PyTorch: all lattices in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Lattice
from dynbatch.systems.on_torch.models.lattice_steps import (
    Cells,
    GRUCells,
    LatticeSteps,
    LSTMCells,
)
from dynbatch.systems.on_torch.net import BatchedVertices, Net, score_labels
from dynbatch.systems.on_torch.rows import move_to_device
from dynbatch.systems.plans.lattices import plan_lattice_rows


class LatticeGates(nn.Module):
    """Gates of the cells of a kind of arcs: W x + b for all, U h for those that read h directly.

    `reset` is U_n, which multiplies h times r in a GRU's last gate; None for an LSTM.
    """

    def __init__(self, net: Net, kind: str) -> None:
        super().__init__()
        self.inputs = net.make_linear(f"W_{kind}", f"b_{kind}")
        self.states = net.make_linear(f"U_{kind}")
        self.reset = net.make_linear(f"U_n_{kind}") if f"U_n_{kind}" in net.shapes else None

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """W, b, U and a GRU's U_n, in the orientation of nn.Linear."""
        reset = () if self.reset is None else (self.reset.weight,)
        return self.inputs.weight, self.inputs.bias, self.states.weight, *reset


class Levels(BatchedVertices):
    """All lattices in parallel, step by step; one classifier call for all states.

    Words are computed in as few batches as possible, h and c separately, and tanh by sigmoid. Other
    variants were slower.
    """

    def __init__(self, cells: type[Cells], model: Model) -> None:
        super().__init__(model)
        self.characters, self.words = self.make_table("characters"), self.make_table("words")
        self.h_0, self.c_0 = self.make_parameter("h_0"), self.make_parameter("c_0")
        self.classifier = self.make_linear("W_out")
        self.char, self.word = LatticeGates(self, "char"), LatticeGates(self, "word")
        self.cells = cells

    def plan(self, lattices: Sequence[Lattice], device: torch.device) -> Any:
        """Plan the rows of all states, and batches of words."""
        return move_to_device(plan_lattice_rows(lattices), device)

    def forward(self, plan: Any) -> tuple[Tensor, Tensor]:
        x, y = self.characters(plan.characters), self.words(plan.words)
        start = torch.cat([self.h_0, self.c_0]) if self.char.reset is None else self.h_0
        given = start, x, y, *self.char.weights, *self.word.weights
        h = LatticeSteps.apply(self.cells, plan, *given)  # type: ignore[no-untyped-call]
        return score_labels(self.classifier(h), plan.labels)


LEVELS = {
    "lattice_lstm": partial(Levels, LSTMCells),
    "lattice_gru": partial(Levels, GRUCells),
}
