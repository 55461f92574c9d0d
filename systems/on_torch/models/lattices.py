"""Lattices in PyTorch: one at a time, state by state, and all lattices in parallel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Lattice
from dynbatch.systems.on_torch.models.lattice_steps import (
    GatedSteps,
    GRUCells,
    LatticeSteps,
    LSTMCells,
    Steps,
    SummedSteps,
)
from dynbatch.systems.on_torch.net import Batched, Net, OneByOne
from dynbatch.systems.on_torch.rows import move_to_device, to_tensor
from dynbatch.systems.plans.lattices import plan_lattice_rows
from dynbatch.systems.plans.trees import invert_permutation

State = tuple[Tensor, ...]  # h first


class LatticeGates(nn.Module):
    """Gates of the cells of a kind of arcs: W x + b for all, U h for those that read h directly.

    `reset` is U_n, which multiplies h times r in a GRU's last gate; None for an LSTM.
    """

    def __init__(self, net: Net, kind: str) -> None:
        super().__init__()
        self.inputs = net.make_linear(f"W_{kind}", f"b_{kind}")
        self.states = net.make_linear(f"U_{kind}")
        self.reset = net.make_linear(f"U_n_{kind}") if f"U_n_{kind}" in net.shapes else None

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Return all pre-activations, if all gates read h."""
        gates: Tensor = self.inputs(x) + self.states(h)
        return gates

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """W, b, U and a GRU's U_n, in the orientation of nn.Linear."""
        reset = () if self.reset is None else (self.reset.weight,)
        return self.inputs.weight, self.inputs.bias, self.states.weight, *reset


class LatticeNet(Net):
    """Parameters of a lattice model; `gate` weights words, in the gated model."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.characters, self.words = self.make_table("characters"), self.make_table("words")
        self.h_0, self.c_0 = self.make_parameter("h_0"), self.make_parameter("c_0")
        self.classifier = self.make_linear("W_out")
        self.char, self.word = LatticeGates(self, "char"), LatticeGates(self, "word")
        self.gate = LatticeGates(self, "gate") if "W_gate" in self.shapes else None


class LatticeText(NamedTuple):
    """Lattice in Python numbers, with a tensor of labels, which the loss reads at once.

    Attributes:
        labels: labels of all states.
        begins: start states of the words that end in each state, from the second state on.
    """

    labels: Tensor
    begins: list[list[int]]


class LatticeTexts(NamedTuple):
    """Lattices, and the characters and words of all of them in the order of their arcs.

    One embedding lookup serves the mini-batch. With one lookup per lattice or per arc, each sparse
    gradient would be added to the others by copying all of them.
    """

    characters: Tensor
    words: Tensor
    lattices: list[LatticeText]


def _list_begins(lattice: Lattice) -> list[list[int]]:
    sources = lattice.sources.tolist()
    return [sources[first + 1 : end] for first, end in pairwise(lattice.arc_start.tolist()[1:])]


class Recursive(LatticeNet, OneByOne):
    """One lattice at a time, state by state, one call per cell."""

    def prepare(self, lattices: Sequence[Lattice]) -> LatticeTexts:
        """Convert tokens and labels to tensors, and the structure to Python numbers."""
        device = self.h_0.device
        tokens = np.concatenate([lattice.tokens for lattice in lattices])
        is_character = np.concatenate([lattice.is_character for lattice in lattices])
        return LatticeTexts(
            to_tensor(tokens[is_character], device),
            to_tensor(tokens[~is_character], device),
            [
                LatticeText(to_tensor(lattice.tags, device), _list_begins(lattice))
                for lattice in lattices
            ],
        )

    def yield_scores(self, batch: LatticeTexts) -> Iterator[tuple[Tensor, Tensor]]:
        characters = iter(torch.split(self.characters(batch.characters), 1))
        words = iter(torch.split(self.words(batch.words), 1))
        for text in batch.lattices:
            states = [self.start()]
            for begins in text.begins:
                arcs = [(next(words), states[begin]) for begin in begins]
                states.append(self.step(next(characters), states[-1], arcs))
            yield self.classifier(torch.cat([state[0] for state in states])), text.labels

    def start(self) -> State:
        """Return the state before the first character."""
        return self.h_0[None], self.c_0[None]

    @abstractmethod
    def step(self, x: Tensor, before: State, arcs: Sequence[tuple[Tensor, State]]) -> State:
        """Return the next state, given a character and the words that end with it."""


class RecursiveSums(Recursive):
    """Model in which a state is the sum of the cells of all arcs into it."""

    def step(self, x: Tensor, before: State, arcs: Sequence[tuple[Tensor, State]]) -> State:
        """Return the sum of the cells of a character and of the words that end with it."""
        cells = [self.compute_cell(self.char, x, before)]
        cells += [self.compute_cell(self.word, word, begin) for word, begin in arcs]
        return tuple(torch.stack(states).sum(0) for states in zip(*cells, strict=True))

    @abstractmethod
    def compute_cell(self, gates: LatticeGates, x: Tensor, before: State) -> State:
        """Return the state after one arc."""


class RecursiveLSTM(RecursiveSums):
    """Lattice-LSTM."""

    def compute_cell(self, gates: LatticeGates, x: Tensor, before: State) -> State:
        h, c = before
        f, i, o, g = gates(x, h).chunk(4, dim=1)
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        return torch.sigmoid(o) * torch.tanh(c), c


class RecursiveGRU(RecursiveSums):
    """Lattice-GRU, which does not use c_0."""

    def start(self) -> State:
        """Return h before the first character."""
        return (self.h_0[None],)

    def compute_cell(self, gates: LatticeGates, x: Tensor, before: State) -> State:
        (h,) = before
        assert gates.reset is not None
        x_r, x_z, x_n = gates.inputs(x).chunk(3, dim=1)
        h_r, h_z = gates.states(h).chunk(2, dim=1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + gates.reset(r * h))
        return (z * h + (1 - z) * n,)


class RecursiveGated(Recursive):
    """Lattice-LSTM with gates."""

    def step(self, x: Tensor, before: State, arcs: Sequence[tuple[Tensor, State]]) -> State:
        """Return a character's cell, which weights the words that end with it, if any."""
        h, c = before
        i, o, f, g = self.char(x, h).chunk(4, dim=1)
        i, g = torch.sigmoid(i), torch.tanh(g)
        if not arcs:
            c = torch.sigmoid(f) * c + i * g
        else:
            assert self.gate is not None
            cells = [self.compute_word_cell(word, begin) for word, begin in arcs]
            gates = [torch.sigmoid(self.gate(x, cell)) for cell in cells]
            weights = torch.softmax(torch.stack([i, *gates]), dim=0)
            c = (weights * torch.stack([g, *cells])).sum(0)
        return torch.sigmoid(o) * torch.tanh(c), c

    def compute_word_cell(self, x: Tensor, before: State) -> Tensor:
        """Return c of a word."""
        h, c = before
        i, f, g = self.word(x, h).chunk(3, dim=1)
        return torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)


class Levels(LatticeNet, Batched):
    """All lattices in parallel, step by step; one classifier call for all states.

    Words are computed in as few batches as possible, h and c separately, and tanh by sigmoid. Other
    variants were slower.
    """

    def __init__(self, steps: Any, model: Model) -> None:
        super().__init__(model)
        self.steps: type[Steps] = steps

    def plan(self, lattices: Sequence[Lattice], device: torch.device) -> Any:
        """Plan the rows of all states, and batches of words."""
        return move_to_device(plan_lattice_rows(lattices), device)

    def forward(self, plan: Any) -> tuple[Tensor, Tensor]:
        x, y = self.characters(plan.characters), self.words(plan.words)
        start = torch.cat([self.h_0, self.c_0]) if self.char.reset is None else self.h_0
        given = start, x, y, *self.yield_weights()
        h = LatticeSteps.apply(self.steps, plan, *given)  # type: ignore[no-untyped-call]
        logits = self.classifier(h)
        return functional.cross_entropy(logits, plan.labels, reduction="sum"), logits

    def yield_weights(self) -> Iterator[Tensor]:
        """Yield the weights of the characters' cells, of the words' cells and of the gate."""
        for gates in (self.char, self.word, self.gate):
            if gates is not None:
                yield from gates.weights

    def find_canonical_rows(self, plan: Any) -> NDArray[np.integer]:
        return invert_permutation(plan.order)


EAGER = {
    "lattice_lstm": RecursiveLSTM,
    "lattice_gru": RecursiveGRU,
    "gated_lattice_lstm": RecursiveGated,
}
LEVELS = {
    "lattice_lstm": partial(Levels, partial(SummedSteps, LSTMCells)),
    "lattice_gru": partial(Levels, partial(SummedSteps, GRUCells)),
    "gated_lattice_lstm": partial(Levels, GatedSteps),
}
