"""Memory that is kept from one mini-batch to the next."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor


class Workspace:
    """Tensors by name, which grow where they must.

    PyTorch gives more than 32 MiB back to the system as soon as a tensor goes, and gets them as
    fresh pages, which cost more than to write them, for the next mini-batch.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """The memory of a name, on the device of `like`; holds whatever was there."""
        kept = self._kept.get(name)
        if kept is None or kept.numel() < prod(shape):
            with torch.inference_mode(False):
                kept = self._kept[name] = torch.empty(prod(shape), device=like.device)
        return kept[: prod(shape)].view(shape)
