"""PyTorch baseline with manual level batching; most derivatives are written by hand, too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harness.contracts.system import Clock
from systems.on_torch.eager import TorchSystem
from systems.on_torch.layers import LateOutputs


class Adapter(TorchSystem):
    """System that plans a mini-batch's levels in NumPy (construct), and then runs them."""

    networks = "systems.on_torch.models:LEVELS"
    phases = ("construct", "forward", "backward", "update")

    def _forward(self, clock: Clock) -> tuple[Tensor, Tensor | LateOutputs]:
        self._plan = self._net.plan(self._instances, self._device)
        clock.mark("construct")
        loss_and_outputs: tuple[Tensor, Tensor | LateOutputs] = self._net(self._plan)
        clock.mark("forward")
        return loss_and_outputs

    def _order_outputs(self, outputs: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        rows = self._net.find_canonical_rows(self._plan)
        return outputs if rows is None else outputs[rows]
