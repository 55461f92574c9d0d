"""PyTorch as people write it first: one instance at a time, recursively, with autograd."""

from __future__ import annotations

from systems.on_torch.runtime import TorchSystem


class Adapter(TorchSystem):
    """Builds autograd's graph while it computes, so that forward includes construction."""

    networks = "systems.on_torch.models:EAGER"
    phases = ("forward", "backward", "update")
