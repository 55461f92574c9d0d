"""The backend's memory: buffers that are allocated once, grow when they must, and are reused."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from harness.engine.lowering.plan import GROWTH, Buffer, BufferName


def empty(shape: tuple[int, int], device: torch.device) -> Tensor:
    """Room for floats."""
    return torch.empty(shape, device=device)


class Matrix:
    """One buffer of rows."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.width, self.device = width, device
        self.tensor = empty((0, width), device)
        self.columns: dict[tuple[int, int], Tensor] = {}

    def ensure(self, n_rows: int, n_kept: int = 0) -> None:
        """Make room for n_rows rows; of what it held, the first rows stay when it grows."""
        if n_rows <= len(self.tensor):
            return
        self.columns.clear()
        kept = self.tensor[:n_kept].clone()
        self.tensor = empty((0, self.width), self.device)  # both may not fit
        self.tensor = empty((int(n_rows * GROWTH) + 1, self.width), self.device)
        self.tensor[:n_kept] = kept

    def slice(self, start: int, width: int) -> Tensor:
        """All rows of some columns (a view, kept for the next time)."""
        key = (start, width)
        if key not in self.columns:
            self.columns[key] = self.tensor[:, start : start + width]
        return self.columns[key]


class Workspace:
    """Matrices by name: those of one vertex function, and the shared ones of the states."""

    def __init__(
        self,
        buffers: Mapping[BufferName, Buffer],
        shared: dict[BufferName, Matrix],
        device: torch.device,
    ) -> None:
        self.buffers, self.shared = buffers, shared
        self.own: dict[BufferName, Matrix] = {}
        for name, buffer in buffers.items():
            if name.is_shared:
                shared.setdefault(name, Matrix(buffer.width, device))
            else:
                self.own[name] = Matrix(buffer.width, device)

    def matrix(self, name: BufferName) -> Matrix:
        """One matrix by its buffer's name."""
        return self.own.get(name) or self.shared[name]
