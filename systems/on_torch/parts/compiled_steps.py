"""The elementwise part of an LSTM step and of its derivative, compiled by torch.compile.

Products stay PyTorch's. The number of rows is dynamic; hidden sizes are compiled in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from systems.on_torch.parts.lstm import StepStates


def first_state(gates: Tensor, tanh_c: Tensor, h: Tensor) -> Tensor:
    """See StepStates.advance, from a state of zeros; returns c."""
    i, f, g, o = gates.chunk(4, 1)
    i, g, o = i.sigmoid(), g.tanh(), o.sigmoid()
    c = i * g
    return _written(gates, (i, f.sigmoid(), g, o), c, tanh_c, h)


def next_state(gates: Tensor, c_before: Tensor, tanh_c: Tensor, h: Tensor) -> Tensor:
    """See StepStates.advance; returns c, for memory of c_before and c is one."""
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    return _written(gates, (i, f, g, o), f * c_before + i * g, tanh_c, h)


def _written(
    gates: Tensor, i_f_g_o: tuple[Tensor, ...], c: Tensor, tanh_c: Tensor, h: Tensor
) -> Tensor:
    for part, values in zip(gates.chunk(4, 1), i_f_g_o, strict=True):
        part.copy_(values)
    tanh_c.copy_(c.tanh())
    h.copy_(i_f_g_o[3] * tanh_c)
    return c


def gate_gradients(
    dh: Tensor, dc: Tensor, gates: Tensor, tanh_c: Tensor, c_before: Tensor, d: Tensor
) -> None:
    """See StepStates.retreat."""
    i, f, g, o = gates.chunk(4, 1)
    di, df, dg, do = d.chunk(4, 1)
    dc_all = dc + dh * o * (1 - tanh_c * tanh_c)
    di.copy_(dc_all * g * i * (1 - i))
    df.copy_(dc_all * c_before * f * (1 - f))
    dg.copy_(dc_all * i * (1 - g * g))
    do.copy_(dh * tanh_c * o * (1 - o))
    dc.copy_(dc_all * f)


class CompiledStates(StepStates):
    """Steps whose elementwise parts are one compiled function each."""

    first = staticmethod(torch.compile(first_state))
    next = staticmethod(torch.compile(next_state))
    gradients = staticmethod(torch.compile(gate_gradients))

    @staticmethod
    def advance(
        gates: Tensor, c_before: Tensor | None, c: Tensor, tanh_c: Tensor, h: Tensor
    ) -> None:
        """By the compiled functions, which cannot write to memory that they read besides."""
        if c_before is None:
            c.copy_(CompiledStates.first(gates, tanh_c, h))
        else:
            c.copy_(CompiledStates.next(gates, c_before, tanh_c, h))

    @staticmethod
    def retreat(
        dh: Tensor, dc: Tensor, gates: Tensor, tanh_c: Tensor, c_before: Tensor, d: Tensor
    ) -> None:
        """By the compiled function."""
        CompiledStates.gradients(dh, dc, gates, tanh_c, c_before, d)

    @staticmethod
    def compile_for(h: int, device: torch.device, *, backward: bool) -> None:
        """Compile for a hidden size, for any number of rows and for one."""
        for n in (3, 1):

            def rows(*parts: int, n: int = n) -> list[Tensor]:
                return [dynamic_rows(n, k * h, device) for k in parts]

            with torch.no_grad():
                CompiledStates.first(*rows(4, 1, 1))
                CompiledStates.next(*rows(4, 1, 1, 1))
                if backward:
                    CompiledStates.gradients(*rows(1, 1, 4, 1, 1, 4))


def dynamic_rows(n: int, width: int, device: torch.device) -> Tensor:
    """Zeros (n, width) that make torch.compile compile for any number of rows, but for one."""
    values = torch.zeros(n, width, device=device)
    if n > 1:
        torch._dynamo.mark_dynamic(values, 0)
    return values
