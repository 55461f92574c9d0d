"""What both backends of PyTorch share: parameters on a device, updates, peaks of memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import Tensor

from harness.contracts.model import Weights
from harness.engine import backend
from harness.vertex.folding import FoldedTable
from harness.vertex.subgraph.columns import Pack

LookedUp = Iterable[tuple[str, Tensor, Tensor]]  # a table, rows of it, and their gradients


class TorchBackend(backend.Backend):
    """A backend whose arrays are tensors of one device."""

    _device: torch.device

    def peak_memory_bytes(self) -> int | None:
        """Peak of CUDA memory."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return None

    def forget_peak_memory(self) -> None:
        """Let the peak of CUDA memory begin anew."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()


class TorchParameters:
    """float32 tensors by name, and dense gradients of them.

    loaded: names of those that are learned. packs: parameters that others' columns make up.
    """

    def __init__(self, weights: Weights, device: torch.device) -> None:
        self.loaded, self.device = tuple(weights), device
        self.values = {
            name: torch.tensor(weight, dtype=torch.float32, device=device).contiguous()
            for name, weight in weights.items()
        }
        self.packs: dict[str, Pack] = {}
        self.dense: dict[str, Tensor] = {}

    def empty(self, *shape: int) -> Tensor:
        """Room for floats."""
        return torch.empty(shape, device=self.device)

    def fold(self, tables: Iterable[FoldedTable]) -> None:
        """Multiply tables with weights, once; their products are parameters like any other."""
        for folded in tables:
            if folded.name not in self.values:
                product = self.values[folded.table] @ self.values[folded.weight]
                self.values[folded.name] = product

    def pack(self, packs: Iterable[Pack]) -> None:
        """Bring columns of parameters side by side; packs are parameters like any other.

        What is learned are the parameters that they are made of.
        """
        for pack in packs:
            if pack.name not in self.values:
                columns = [self.columns(p.parameter, p.start, p.width) for p in pack.parts]
                self.values[pack.name] = torch.cat(columns, dim=-1).contiguous()
                self.packs[pack.name] = pack

    def columns(self, parameter: str, start: int, width: int) -> Tensor:
        """Columns of a parameter, a view."""
        return self.values[parameter].narrow(-1, start, width)

    def renew(self, name: str) -> None:
        """Bring the columns of a pack side by side again."""
        for part, at in self.packs[name].places():
            target = self.columns(name, at, part.width)
            target.copy_(self.columns(part.parameter, part.start, part.width))

    def gradient(self, name: str) -> Tensor:
        """The place of a parameter's gradient."""
        if name not in self.dense:
            self.dense[name] = self.empty(*self.values[name].shape)
        return self.dense[name]

    def descend(self, learning_rate: float, having: Iterable[str], looked_up: LookedUp) -> None:
        """One step of SGD on the parameters that have a gradient; on tables, row by row."""
        for name in having:
            if name in self.packs:
                for part, at in self.packs[name].places():
                    gradient = self.dense[name].narrow(-1, at, part.width)
                    own = self.columns(part.parameter, part.start, part.width)
                    own.add_(gradient, alpha=-learning_rate)
            else:
                self.values[name].add_(self.dense[name], alpha=-learning_rate)
        for name, rows, dy in looked_up:
            if self.device.type == "cuda":  # sorts the rows, so that sums are in one order
                self.values[name].index_put_((rows,), dy * -learning_rate, accumulate=True)
            else:
                self.values[name].index_add_(0, rows, dy, alpha=-learning_rate)
        for name in self.packs:
            self.renew(name)

    def dense_gradients(self, having: Collection[str], looked_up: LookedUp) -> Weights:
        """Gradients of all that was loaded, for checking."""
        found = {name: torch.zeros_like(value) for name, value in self.values.items()}
        for name in having:
            found[name] += self.dense[name]
        for name, rows, dy in looked_up:
            found[name].index_add_(0, rows, dy)
        for name, pack in self.packs.items():
            for part, at in pack.places():
                mine = found[part.parameter].narrow(-1, part.start, part.width)
                mine += found[name].narrow(-1, at, part.width)
        return {name: found[name].cpu().numpy() for name in self.loaded}

    def weights(self) -> Weights:
        """Copies of all that was loaded."""
        return {name: self.values[name].cpu().numpy().copy() for name in self.loaded}
