"""Base of both backends that use PyTorch: parameters on a device, updates, peak memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine import backend
from dynbatch.harness.engine.parameters import LookedUp, ParameterMemory


class TorchBackend(backend.Backend):
    """A backend whose arrays are tensors of one device."""

    _device: torch.device

    def synchronize(self) -> None:
        """Wait for CUDA."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def read_peak_memory(self) -> int | None:
        """Return the peak of CUDA memory."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return None

    def reset_peak_memory(self) -> None:
        """Reset the peak of CUDA memory."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()


class TorchParameters(ParameterMemory[Tensor]):
    """Parameters as float32 tensors by name, and their dense gradients."""

    def __init__(self, weights: Weights, device: torch.device) -> None:
        values = {
            name: torch.tensor(weight, dtype=torch.float32, device=device).contiguous()
            for name, weight in weights.items()
        }
        super().__init__(values)
        self.device = device

    def allocate(self, *shape: int) -> Tensor:
        """Allocate an uninitialized tensor of floats."""
        return torch.empty(shape, device=self.device)

    def to_numpy(self, values: Tensor) -> NDArray[Any]:
        """Return a tensor in NumPy, copied if it is on a GPU."""
        array: NDArray[Any] = values.cpu().numpy()
        return array

    def view_columns(self, parameter: str, start: int, width: int) -> Tensor:
        """Return columns of a parameter as a view."""
        return self.values[parameter].narrow(-1, start, width)

    def update_parameters(
        self, learning_rate: float, having: Iterable[str], looked_up: LookedUp
    ) -> None:
        """Take one step of SGD on the parameters that have a gradient; on tables, row by row."""
        for name in having:
            if name in self.packs:
                for part, at in self.packs[name].iterate_parts():
                    gradient = self.dense[name].narrow(-1, at, part.width)
                    own = self.view_columns(part.parameter, part.start, part.width)
                    own.add_(gradient, alpha=-learning_rate)
            else:
                self.values[name].add_(self.dense[name], alpha=-learning_rate)
        for name, rows, dy in looked_up:
            if self.device.type == "cuda":  # sorts the rows, so that the order of sums is fixed
                self.values[name].index_put_((rows,), dy * -learning_rate, accumulate=True)
            else:
                self.values[name].index_add_(0, rows, dy, alpha=-learning_rate)
        for name in self.packs:
            self.refresh_pack(name)
