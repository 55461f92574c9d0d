"""PyTorch with manual level batching and manual derivatives.

Trees, lattices, LSTM steps, decoders and a parser's decisions are Functions of autograd whose
backward is written by hand; of Tree-FC, only the layer is. dynbatch.systems.on_torch.autograd has
the same forward of trees with autograd's derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dynbatch.harness.contracts.system import Clock
from dynbatch.systems.on_torch.eager import TorchSystem
from dynbatch.systems.on_torch.layers import LateOutputs
from dynbatch.systems.on_torch.products import ONEDNN


class Adapter(TorchSystem):
    """System that plans a mini-batch's levels in NumPy (construct), and then runs them.

    The record names the library of large matmuls.
    """

    networks = "dynbatch.systems.on_torch.models:LEVELS"
    phases = ("construct", "forward", "backward", "update")

    def _forward(self, clock: Clock) -> tuple[Tensor, Tensor | LateOutputs]:
        self._plan = self._net.plan(self._instances, self._device)
        clock.mark("construct")
        loss_and_outputs: tuple[Tensor, Tensor | LateOutputs] = self._net(self._plan)
        clock.mark("forward")
        return loss_and_outputs

    def effective_options(self) -> dict[str, str]:
        """Return the options, and the library of large matmuls outside of nn.LSTM."""
        on_cpu = "oneDNN" if ONEDNN else "PyTorch's BLAS"
        library = on_cpu if self._device.type == "cpu" else "cuBLAS"
        return super().effective_options() | {"matmuls": library}

    def _order_outputs(self, outputs: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        rows = self._net.find_canonical_rows(self._plan)
        return outputs if rows is None else outputs[rows]
