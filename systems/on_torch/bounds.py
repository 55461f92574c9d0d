"""Matmuls and copies by PyTorch on a GPU, for the systems `products` and `copies`.

torch.mm calls cuBLAS, in exact float32. Both systems import this module by name, so that PyTorch is
not loaded on a CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Matmuls:
    """Matmuls of rows with parameters, as CpuMatmuls in systems/products.py.

    The gradients of rows have memory of their own: values that grow from run to run would become
    infinite, and a GPU multiplies those at a higher clock rate.

    Args:
        device: "cuda", or in tests "cpu".
        rows_at_once: number of rows per call.
    """

    def __init__(self, device: str, rows_at_once: int) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        self._device, self._at_once = torch.device(device), rows_at_once
        self._dx: dict[int, Tensor] = {}  # by width
        self.library = f"cuBLAS of PyTorch {torch.__version__}"

    def place(self, array: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def forward(self, x: Tensor, weight: Tensor, y: Tensor, n: int) -> None:
        """Compute y = x W of the first n rows."""
        for i in range(0, n, self._at_once):
            rows = slice(i, min(i + self._at_once, n))
            torch.mm(x[rows], weight, out=y[rows])

    def backward(
        self, x: Tensor, weight: Tensor, dy: Tensor, gradient: Tensor, n: int, passes_on: bool
    ) -> None:
        """Compute the gradient x^T dy, and dy W^T if the left operand has a gradient."""
        dx = self._provide_dx(x) if passes_on else None
        for i in range(0, n, self._at_once):
            rows = slice(i, min(i + self._at_once, n))
            if i == 0:
                torch.mm(x[rows].t(), dy[rows], out=gradient)
            else:
                gradient.addmm_(x[rows].t(), dy[rows])
            if dx is not None:
                torch.mm(dy[rows], weight.t(), out=dx[rows])

    def _provide_dx(self, x: Tensor) -> Tensor:
        known = self._dx.get(x.shape[1])
        if known is None or len(known) < len(x):
            known = self._dx[x.shape[1]] = torch.empty_like(x)
        return known

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


class Copies:
    """Two arrays on a device, one of which is copied to the other.

    Args:
        device: "cuda", or in tests "cpu".
        n_bytes: size of each.
    """

    def __init__(self, device: str, n_bytes: int) -> None:
        self._device = torch.device(device)
        self._source = torch.ones(n_bytes // 4, device=self._device)
        self._target: Any = torch.zeros_like(self._source)

    def run(self) -> None:
        self._target.copy_(self._source)

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
