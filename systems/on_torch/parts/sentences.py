"""Mini-batches of sentences as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.values.arrays import IntArray
from harness.values.instances import Chain
from systems.on_torch.parts.rows import Ids, to_device


class ReadChain(NamedTuple):
    """One sentence; spelled: the letters of its rare words, by the word's place in it."""

    words: Tensor
    labels: Tensor
    spelled: dict[int, Tensor]


def read_chains(chains: Sequence[Chain], device: torch.device) -> list[ReadChain]:
    """Make tensors of words, labels and letters."""
    return [
        ReadChain(
            tensor(chain.words, device),
            tensor(chain.labels, device),
            {
                place: tensor(chain.characters[start:end], device)
                for place, (start, end) in enumerate(
                    zip(chain.char_start[:-1], chain.char_start[1:], strict=True)
                )
                if end > start
            },
        )
        for chain in chains
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
