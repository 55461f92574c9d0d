"""LSTM and GRU cells of all arcs of a kind, computed some at a time, derivatives by hand.

The inputs' share of all gates is one product, and so are the gradients of each weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from systems.on_torch.parts.lstm import through_sigmoid
from systems.on_torch.parts.nonlinear import tanh, through_tanh
from systems.on_torch.parts.products import Repeated, product, weight_gradient

aten = torch.ops.aten
State = Sequence[Tensor]  # h first


class Cells(ABC):
    """Gates (n, m), first the inputs' share, from x (n, n_inputs); weights as nn.Linear has them.

    sizes: cells of every batch. keep: whether a derivative follows, of which `d` is that of the
    gates before their non-linearities.
    """

    def __init__(
        self, sizes: list[int], x: Tensor, W: Tensor, b: Tensor, U: Tensor, *, keep: bool
    ) -> None:
        self.x, self.W, self.U, self.keep = x, W, U, keep
        self.width = U.shape[1]
        self.all_gates = product(x, W, b)
        self.sizes, self.gates = sizes, torch.split(self.all_gates, sizes)
        self.by_state = Repeated(U)

    @abstractmethod
    def forward(self, batch: int, before: State, into: State) -> None:
        """Add to `into` the states behind a batch's cells, from those before them, (n, h) each."""

    def begin_backward(self) -> None:
        """Make room for the derivative."""
        self.all_d = torch.empty_like(self.all_gates)
        self.d = torch.split(self.all_d, self.sizes)

    @abstractmethod
    def backward(self, batch: int, dstate: State, before: State, into: State) -> None:
        """Add to `into` the gradients of the states before, from those of the states behind."""

    def gradients(self, h: Tensor) -> tuple[Tensor, ...]:
        """Of x, W, b and U, from h before all cells."""
        d = self.all_d
        dU = weight_gradient(d[:, : len(self.U)], h)
        return product(d, self.W.t()), weight_gradient(d, self.x), d.sum(0), dU


class LSTMCells(Cells):
    """Gates f, i, o and g; a state is h and c."""

    def __init__(
        self, sizes: list[int], x: Tensor, W: Tensor, b: Tensor, U: Tensor, *, keep: bool
    ) -> None:
        super().__init__(sizes, x, W, b, U, keep=keep)
        if keep:
            self.tanh_c = torch.split(x.new_empty(len(x), self.width), sizes)

    def forward(self, batch: int, before: State, into: State) -> None:
        """c' = f c + i g, h' = o tanh c'."""
        (h, c), (into_h, into_c) = before, into
        gates = self.gates[batch]
        gates += self.by_state(h)
        gates[:, : 3 * self.width].sigmoid_()
        f, i, o, g = gates.chunk(4, 1)
        new = torch.mul(f, c).addcmul_(i, tanh(g, g))
        tanh_c = tanh(new, self.tanh_c[batch] if self.keep else None)
        into_h.addcmul_(o, tanh_c)
        into_c += new

    def backward(self, batch: int, dstate: State, before: State, into: State) -> None:
        """See Cells."""
        tanh_c, gates, d = self.tanh_c[batch], self.gates[batch], self.d[batch]
        dh, dc_outside = dstate
        f, i, o, g = gates.chunk(4, 1)
        df, di, do, dg = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc = aten.tanh_backward(dh * o, tanh_c).add_(dc_outside)
        torch.mul(dc, before[1], out=df)
        torch.mul(dc, g, out=di)
        torch.mul(dc, i, out=dg)
        n_sigmoids = 3 * self.width
        through_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        through_tanh(dg, g)
        into[0].add_(product(d, self.U.t()))
        into[1].addcmul_(dc, f)


class GRUCells(Cells):
    """Gates r, z and n; a state is h."""

    def __init__(
        self,
        sizes: list[int],
        x: Tensor,
        W: Tensor,
        b: Tensor,
        U: Tensor,
        U_n: Tensor,
        *,
        keep: bool,
    ) -> None:
        super().__init__(sizes, x, W, b, U, keep=keep)
        self.U_n, self.by_reset = U_n, Repeated(U_n)

    def forward(self, batch: int, before: State, into: State) -> None:
        """n = tanh(W x + U_n (r h) + b), h' = z h + (1 - z) n."""
        (h,), (into_h,) = before, into
        r_z, n = torch.split_with_sizes(self.gates[batch], [2 * self.width, self.width], 1)
        r_z += self.by_state(h)
        r, z = r_z.sigmoid_().chunk(2, 1)
        n += self.by_reset(r * h)
        into_h += torch.lerp(tanh(n, n), h, z)

    def backward(self, batch: int, dstate: State, before: State, into: State) -> None:
        """See Cells."""
        (dnew,), (h,), n_sigmoids = dstate, before, 2 * self.width
        gates, d = self.gates[batch], self.d[batch]
        r, z, n = gates.chunk(3, 1)
        dr, dz, dn = d.chunk(3, 1)
        dh = dnew * z
        torch.sub(h, n, out=dz).mul_(dnew)
        torch.sub(dnew, dh, out=dn)
        through_tanh(dn, n)
        dreset = product(dn, self.U_n.t())
        torch.mul(dreset, h, out=dr)
        through_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        dh.addcmul_(dreset, r).add_(product(d[:, :n_sigmoids], self.U.t()))
        into[0].add_(dh)

    def gradients(self, h: Tensor) -> tuple[Tensor, ...]:
        """Of x, W, b, U and U_n."""
        r, _, _ = self.all_gates.chunk(3, 1)
        return *super().gradients(h), weight_gradient(self.all_d[:, 2 * self.width :], r * h)
