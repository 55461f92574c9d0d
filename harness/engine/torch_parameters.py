"""Base of both backends that use PyTorch: parameters on a device, updates, peak memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import Tensor

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine import backend
from dynbatch.harness.vertex.folding import FoldedTable
from dynbatch.harness.vertex.shared_products import RowBlock
from dynbatch.harness.vertex.subgraph.columns import Pack

LookedUp = Iterable[tuple[str, Tensor, Tensor]]  # a table, its looked-up rows, and their gradients


class TorchBackend(backend.Backend):
    """A backend whose arrays are tensors of one device."""

    _device: torch.device

    def read_peak_memory(self) -> int | None:
        """Return the peak of CUDA memory."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return None

    def reset_peak_memory(self) -> None:
        """Reset the peak of CUDA memory."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()


class TorchParameters:
    """Parameters as float32 tensors by name, and their dense gradients.

    Attributes:
        loaded: Names of the parameters that are learned.
        packs: Parameters that consist of columns of others.
    """

    def __init__(self, weights: Weights, device: torch.device) -> None:
        self.loaded, self.device = tuple(weights), device
        self.values = {
            name: torch.tensor(weight, dtype=torch.float32, device=device).contiguous()
            for name, weight in weights.items()
        }
        self.packs: dict[str, Pack] = {}
        self._blocks: list[RowBlock] = []
        self.dense: dict[str, Tensor] = {}

    def allocate(self, *shape: int) -> Tensor:
        """Allocate an uninitialized tensor of floats."""
        return torch.empty(shape, device=self.device)

    def fold(self, tables: Iterable[FoldedTable]) -> None:
        """Multiply tables by weights, once; the products become parameters."""
        for folded in tables:
            if folded.name not in self.values:
                product = self.values[folded.table] @ self.values[folded.weight]
                self.values[folded.name] = product

    def view_rows(self, blocks: Iterable[RowBlock]) -> None:
        """Make rows of parameters readable as parameters, without a copy."""
        for block in blocks:
            self.values[block.name] = self.values[block.parameter].narrow(0, block.start, block.n)
            self._blocks.append(block)

    def pack(self, packs: Iterable[Pack]) -> None:
        """Concatenate columns of parameters into packs, which become parameters.

        The update changes the parameters that a pack consists of.
        """
        for pack in packs:
            if pack.name not in self.values:
                columns = [self.view_columns(p.parameter, p.start, p.width) for p in pack.parts]
                self.values[pack.name] = torch.cat(columns, dim=-1).contiguous()
                self.packs[pack.name] = pack

    def view_columns(self, parameter: str, start: int, width: int) -> Tensor:
        """Return columns of a parameter as a view."""
        return self.values[parameter].narrow(-1, start, width)

    def refresh_pack(self, name: str) -> None:
        """Copy the current columns of a pack's parameters into the pack."""
        for part, at in self.packs[name].iterate_parts():
            target = self.view_columns(name, at, part.width)
            target.copy_(self.view_columns(part.parameter, part.start, part.width))

    def provide_gradient(self, name: str) -> Tensor:
        """Return the memory of a parameter's gradient."""
        if name not in self.dense:
            self.dense[name] = self.allocate(*self.values[name].shape)
        return self.dense[name]

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

    def collect_gradients(self, having: Collection[str], looked_up: LookedUp) -> Weights:
        """Return the gradients of all loaded parameters, for checking."""
        gradients = {name: torch.zeros_like(value) for name, value in self.values.items()}
        for name in having:
            gradients[name] += self.dense[name]
        for name, rows, dy in looked_up:
            gradients[name].index_add_(0, rows, dy)
        for name, pack in self.packs.items():
            for part, at in pack.iterate_parts():
                mine = gradients[part.parameter].narrow(-1, part.start, part.width)
                mine += gradients[name].narrow(-1, at, part.width)
        for block in self._blocks:
            mine = gradients[block.parameter].narrow(0, block.start, block.n)
            mine += gradients[block.name]
        return {name: gradients[name].cpu().numpy() for name in self.loaded}

    def copy_weights(self) -> Weights:
        """Return copies of all loaded parameters."""
        return {name: self.values[name].cpu().numpy().copy() for name in self.loaded}
