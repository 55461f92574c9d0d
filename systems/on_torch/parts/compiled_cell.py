"""The elementwise parts of a Tree-LSTM's vertices, each compiled by torch.compile.

Products stay PyTorch's. The number of rows is dynamic; hidden sizes are compiled in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from systems.on_torch.parts.compiled_steps import dynamic_rows
from systems.on_torch.parts.tree_lstm_steps import Cell, Level, LevelGradients


def leaf_state(i_o_u: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor) -> None:
    """See Cell.leaf."""
    i, o, u = i_o_u.chunk(3, 1)
    i, o, u = i.sigmoid(), o.sigmoid(), u.tanh()
    _write(i_o_u, (i, o, u), i * u, c, tanh_c, h)


def internal_state(
    i_o_u: Tensor, f_1: Tensor, f_2: Tensor, both_c: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor
) -> None:
    """See Cell.internal."""
    i, o, u = i_o_u.chunk(3, 1)
    i, o, u = i.sigmoid(), o.sigmoid(), u.tanh()
    c_1, c_2 = both_c.chunk(2, 1)
    first, second = f_1.sigmoid(), f_2.sigmoid()
    new_c = i * u + first * c_1 + second * c_2
    f_1.copy_(first)
    f_2.copy_(second)
    _write(i_o_u, (i, o, u), new_c, c, tanh_c, h)


def _write(
    i_o_u: Tensor,
    gates: tuple[Tensor, Tensor, Tensor],
    new_c: Tensor,
    c: Tensor,
    tanh_c: Tensor,
    h: Tensor,
) -> None:
    for part, values in zip(i_o_u.chunk(3, 1), gates, strict=True):
        part.copy_(values)
    new_tanh = new_c.tanh()
    c.copy_(new_c)
    tanh_c.copy_(new_tanh)
    h.copy_(gates[1] * new_tanh)


def leaf_gradients(dh: Tensor, dc: Tensor, i_o_u: Tensor, tanh_c: Tensor, d: Tensor) -> None:
    """See Cell.through_leaf; dc stays."""
    _gates_gradients(dh, dc, i_o_u, tanh_c, d)


def _gates_gradients(dh: Tensor, dc: Tensor, i_o_u: Tensor, tanh_c: Tensor, d: Tensor) -> Tensor:
    i, o, u = i_o_u.chunk(3, 1)
    di, do, du = d.chunk(3, 1)
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    di.copy_(dc * u * i * (1 - i))
    do.copy_(dh * tanh_c * o * (1 - o))
    du.copy_(dc * i * (1 - u * u))
    return dc


def internal_gradients(
    dh: Tensor,
    dc: Tensor,
    i_o_u: Tensor,
    f_1: Tensor,
    f_2: Tensor,
    both_c: Tensor,
    tanh_c: Tensor,
    d: Tensor,
    d_1: Tensor,
    d_2: Tensor,
    d_both_c: Tensor,
) -> None:
    """See Cell.through_internal; dc stays."""
    dc = _gates_gradients(dh, dc, i_o_u, tanh_c, d)
    sides = zip((f_1, f_2), (d_1, d_2), both_c.chunk(2, 1), d_both_c.chunk(2, 1), strict=True)
    for f, df, c, dc_below in sides:
        df.copy_(dc * c * f * (1 - f))
        dc_below.copy_(dc * f)


class CompiledCell(Cell):
    """Each part of a cell is one compiled function."""

    leaf = staticmethod(torch.compile(leaf_state))
    internal = staticmethod(torch.compile(internal_state))
    through_leaf = staticmethod(torch.compile(leaf_gradients))
    gradients = staticmethod(torch.compile(internal_gradients))

    @staticmethod
    def through_internal(
        dh: Tensor, dc: Tensor, level: Level, tanh_c: Tensor, found: LevelGradients
    ) -> None:
        """By the compiled function, which takes tensors only."""
        kept = level.i_o_u, level.f_1, level.f_2, level.both_c
        own = found.i_o_u, found.f_1, found.f_2, found.both_c
        CompiledCell.gradients(dh, dc, *kept, tanh_c, *own)

    @staticmethod
    def compile_for(h: int, device: torch.device, *, backward: bool) -> None:
        """Compile for a hidden size, for any number of rows and for one."""
        for n in (3, 1):

            def rows(*parts: int, n: int = n) -> list[Tensor]:
                return [dynamic_rows(n, k * h, device) for k in parts]

            with torch.no_grad():
                CompiledCell.leaf(*rows(3, 1, 1, 1))
                CompiledCell.internal(*rows(3, 1, 1, 2, 1, 1, 1))
                if backward:
                    CompiledCell.through_leaf(*rows(1, 1, 3, 1, 3))
                    CompiledCell.gradients(*rows(1, 1, 3, 1, 1, 2, 1, 3, 1, 1, 2))
