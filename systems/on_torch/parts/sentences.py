"""Mini-batches of sentences as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.values.arrays import IntArray
from harness.values.instances import Chain
from systems.on_torch.parts.rows import to_device
from systems.plans.trees import Ids


class ReadChain(NamedTuple):
    """One sentence: its labels, and of every word the letters, None where it is looked up."""

    labels: Tensor
    letters: list[Tensor | None]

    @property
    def n_known(self) -> int:
        """Words that are looked up."""
        return self.letters.count(None)


class ReadChains(NamedTuple):
    """Sentences, and the words of all of them that are looked up.

    One embedding look-up serves the mini-batch: a sparse gradient for every sentence would be added
    to the others by copying them.
    """

    words: Tensor
    chains: list[ReadChain]

    def with_vectors(self, vectors: Tensor) -> Iterator[tuple[Tensor, ReadChain]]:
        """Each sentence and its own of all words' vectors."""
        parts = torch.split(vectors, [chain.n_known for chain in self.chains])
        return zip(parts, self.chains, strict=True)


def read_chains(chains: Sequence[Chain], device: torch.device) -> ReadChains:
    """Make tensors of words, labels and letters."""
    known = [chain.words[np.diff(chain.char_start) == 0] for chain in chains]
    read = [ReadChain(tensor(chain.labels, device), _letters(chain, device)) for chain in chains]
    return ReadChains(tensor(np.concatenate(known), device), read)


def _letters(chain: Chain, device: torch.device) -> list[Tensor | None]:
    bounds = zip(chain.char_start[:-1], chain.char_start[1:], strict=True)
    return [
        tensor(chain.characters[start:end], device) if end > start else None
        for start, end in bounds
    ]


def tensor(ids: IntArray, device: torch.device) -> Tensor:
    """Ids as PyTorch indexes by them."""
    return torch.from_numpy(ids.astype(np.int64)).to(device)


def joined(device: torch.device, *columns: Sequence[IntArray]) -> Sequence[Tensor]:
    """Of all instances one array each, end to end, on the device."""
    return to_device(device, *(np.concatenate(column) for column in columns))


def lengths_of(chains: Sequence[Chain]) -> Ids:
    """Words of every sentence (k,)."""
    return np.array([chain.n_words for chain in chains], dtype=np.int64)


class SideBySide:
    """A network that plans its mini-batch itself and keeps the order of words."""

    def prepare(self, instances: Sequence[Any]) -> Sequence[Any]:
        """The instances as they are; planning is timed."""
        return instances

    def in_canonical_order(self, plan: Any, outputs: NDArray[Any]) -> NDArray[Any]:
        """They are in it."""
        return outputs
