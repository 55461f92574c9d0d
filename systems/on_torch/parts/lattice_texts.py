"""A mini-batch of lattices as a plain PyTorch training loop holds and walks it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from harness.values.instances import Lattice
from systems.on_torch.parts.lattice_parameters import LatticeParameters
from systems.on_torch.parts.sentences import tensor

State = tuple[Tensor, ...]  # h first


class LatticeText(NamedTuple):
    """One lattice; labels are a tensor, for a loss reads them all at once.

    begins: of every state behind the first, in which states the words begin that end there.
    """

    labels: Tensor
    begins: list[list[int]]


class LatticeTexts(NamedTuple):
    """K lattices, and the characters and words of all of them in the order of their arcs.

    One embedding look-up serves the mini-batch: a sparse gradient for every lattice, let alone for
    every arc, would be added to the others by copying them.
    """

    characters: Tensor
    words: Tensor
    lattices: list[LatticeText]


def lattice_texts(lattices: Sequence[Lattice], device: torch.device) -> LatticeTexts:
    """Make tensors of tokens and labels, and Python numbers of the structure."""
    tokens = np.concatenate([lattice.tokens for lattice in lattices])
    is_character = np.concatenate([lattice.is_character for lattice in lattices])
    texts = [LatticeText(tensor(lattice.tags, device), _begins(lattice)) for lattice in lattices]
    return LatticeTexts(
        tensor(tokens[is_character], device), tensor(tokens[~is_character], device), texts
    )


def _begins(lattice: Lattice) -> list[list[int]]:
    sources = lattice.sources.tolist()
    return [sources[first + 1 : end] for first, end in pairwise(lattice.arc_start.tolist()[1:])]


class RecursiveLattices(LatticeParameters):
    """One lattice at a time, state by state, a cell a call."""

    def prepare(self, lattices: Sequence[Lattice]) -> LatticeTexts:
        """Tensors on the device and Python numbers."""
        return lattice_texts(lattices, self.h_0.device)

    def forward(self, batch: LatticeTexts) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all states."""
        characters = iter(torch.split(self.characters(batch.characters), 1))
        words = iter(torch.split(self.words(batch.words), 1))
        found = [self.read(text, characters, words) for text in batch.lattices]
        losses, logits = zip(*found, strict=True)
        return torch.stack(losses).sum(), torch.cat(logits)

    def read(
        self, text: LatticeText, characters: Iterator[Tensor], words: Iterator[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Loss and logits of one lattice."""
        states = [self.start()]
        for begins in text.begins:
            arcs = [(next(words), states[begin]) for begin in begins]
            states.append(self.step(next(characters), states[-1], arcs))
        logits = self.classifier(torch.cat([state[0] for state in states]))
        return functional.cross_entropy(logits, text.labels, reduction="sum"), logits

    def start(self) -> State:
        """The state before the first character."""
        return self.h_0[None], self.c_0[None]

    @abstractmethod
    def step(self, x: Tensor, before: State, arcs: Sequence[tuple[Tensor, State]]) -> State:
        """The next state, from a character and the words that end with it."""
