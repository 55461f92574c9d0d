"""LSTM and GRU cells of all arcs of a kind, computed some at a time, derivatives by hand.

The inputs' share of all gates is one product, and so are the gradients of each weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from systems.on_torch.parts.lstm import through_sigmoid
from systems.on_torch.parts.products import product, weight_gradient

aten = torch.ops.aten


class Cells(ABC):
    """Gates (n, m), first the inputs' share, from x (n, n_inputs); weights as nn.Linear has them.

    keep: whether a derivative follows, of which `d` is that of the gates before non-linearities.
    """

    n_states: int  # vectors of a state, side by side; h is the first

    def __init__(self, x: Tensor, W: Tensor, b: Tensor, U: Tensor, *, keep: bool) -> None:
        self.x, self.W, self.U, self.keep = x, W, U, keep
        self.width = U.shape[1]
        self.gates = product(x, W, b)
        self.d = torch.empty_like(self.gates) if keep else self.gates

    @abstractmethod
    def forward(self, rows: slice, before: Tensor) -> Tensor:
        """States behind the cells of some rows, from those before them (k, n_states h)."""

    @abstractmethod
    def backward(self, rows: slice, dstate: Tensor, before: Tensor) -> Tensor:
        """Gradient of the states before, from that of those behind; notes that of the gates."""

    def gradients(self, before: Tensor) -> tuple[Tensor, ...]:
        """Of x, W, b and U, from the states before all cells."""
        d, h = self.d, before[:, : self.width]
        by_state = d[:, : len(self.U)]
        return (
            product(d, self.W.t()),
            weight_gradient(d, self.x),
            d.sum(0),
            weight_gradient(by_state, h),
        )


class LSTMCells(Cells):
    """Gates f, i, o and g; a state is h and c."""

    n_states = 2

    def __init__(self, x: Tensor, W: Tensor, b: Tensor, U: Tensor, *, keep: bool) -> None:
        super().__init__(x, W, b, U, keep=keep)
        self.tanh_c = x.new_empty(len(x) if keep else 0, self.width)

    def forward(self, rows: slice, before: Tensor) -> Tensor:
        """c' = f c + i g, h' = o tanh c'."""
        h, c = before.chunk(2, 1)
        gates = self.gates[rows]
        gates += product(h, self.U)
        gates[:, : 3 * self.width].sigmoid_()
        f, i, o, g = gates.chunk(4, 1)
        g.tanh_()
        state = torch.empty_like(before)
        new_h, new_c = state.chunk(2, 1)
        torch.mul(f, c, out=new_c)
        new_c.addcmul_(i, g)
        tanh_c = torch.tanh(new_c, out=self.tanh_c[rows]) if self.keep else torch.tanh(new_c)
        torch.mul(o, tanh_c, out=new_h)
        return state

    def backward(self, rows: slice, dstate: Tensor, before: Tensor) -> Tensor:
        """See Cells."""
        tanh_c, gates, d = self.tanh_c[rows], self.gates[rows], self.d[rows]
        dh, dc_outside = dstate.chunk(2, 1)
        f, i, o, g = gates.chunk(4, 1)
        df, di, do, dg = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc = aten.tanh_backward(dh * o, tanh_c)
        dc += dc_outside
        torch.mul(dc, before[:, self.width :], out=df)
        torch.mul(dc, g, out=di)
        torch.mul(dc, i, out=dg)
        n_sigmoids = 3 * self.width
        through_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        aten.tanh_backward.grad_input(dg, g, grad_input=dg)
        return torch.cat([product(d, self.U.t()), dc.mul_(f)], dim=1)


class GRUCells(Cells):
    """Gates r, z and n; a state is h."""

    n_states = 1

    def __init__(
        self, x: Tensor, W: Tensor, b: Tensor, U: Tensor, U_n: Tensor, *, keep: bool
    ) -> None:
        super().__init__(x, W, b, U, keep=keep)
        self.U_n = U_n

    def forward(self, rows: slice, before: Tensor) -> Tensor:
        """n = tanh(W x + U_n (r h) + b), h' = z h + (1 - z) n."""
        r_z, n = torch.split(self.gates[rows], [2 * self.width, self.width], dim=1)
        r_z += product(before, self.U)
        r, z = r_z.sigmoid_().chunk(2, 1)
        n += product(r * before, self.U_n)
        return torch.lerp(n.tanh_(), before, z)

    def backward(self, rows: slice, dstate: Tensor, before: Tensor) -> Tensor:
        """See Cells."""
        r, z, n = self.gates[rows].chunk(3, 1)
        d = self.d[rows]
        dr, dz, dn = d.chunk(3, 1)
        dbefore = dstate * z
        torch.mul(dstate, before - n, out=dz)
        torch.sub(dstate, dbefore, out=dn)
        aten.tanh_backward.grad_input(dn, n, grad_input=dn)
        dreset = product(dn, self.U_n.t())
        torch.mul(dreset, before, out=dr)
        n_sigmoids = 2 * self.width
        through_sigmoid(d[:, :n_sigmoids], self.gates[rows][:, :n_sigmoids])
        dbefore.addcmul_(dreset, r)
        dbefore += product(d[:, :n_sigmoids], self.U.t())
        return dbefore

    def gradients(self, before: Tensor) -> tuple[Tensor, ...]:
        """Of x, W, b, U and U_n."""
        r, _, _ = self.gates.chunk(3, 1)
        dn = self.d[:, 2 * self.width :]
        return *super().gradients(before), weight_gradient(dn, r * before)
