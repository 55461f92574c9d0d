"""LSTM weights as nn.LSTM holds them, with one bias, and a recurrence along unpadded columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from systems.on_torch.parts.rows import Columns

aten = torch.ops.aten


def lstm(n_inputs: int, h: int, layers: int = 1) -> nn.LSTM:
    """An nn.LSTM with one bias instead of two: the second is zero and never trained."""
    module = nn.LSTM(n_inputs, h, layers)
    freeze_second_bias(module)
    return module


def freeze_second_bias(module: nn.RNNBase | nn.RNNCellBase) -> None:
    """Set the bias of h to zero, for good."""
    for name, parameter in module.named_parameters():
        if name.startswith("bias_hh"):
            parameter.requires_grad_(False).zero_()


def shared_names(module: str, suffixes: Sequence[str], reverse: str = "") -> dict[str, str]:
    """What the shared weights of a stack's layers, named by suffixes, are called in nn.LSTM."""
    own = {"W": "weight_ih", "U": "weight_hh", "b": "bias_ih"}
    return {
        f"{letter}{suffix}": f"{module}.{name}_l{layer}{reverse}"
        for layer, suffix in enumerate(suffixes)
        for letter, name in own.items()
    }


def lstm_steps(
    x: Tensor, W: Tensor, U: Tensor, b: Tensor, start: Tensor | None, columns: Columns
) -> tuple[Tensor, Tensor]:
    """h (n, h), in rows of columns, and the last c of each (k, h).

    x (n, n_inputs): rows of columns. W (4 h, n_inputs), U (4 h, h), b (4 h,). start: h_0 and c_0
    side by side, (k, 2 h), or None for zeros.
    """
    h, c = LSTMSteps.apply(x, W, U, b, start, columns)  # type: ignore[no-untyped-call]
    return h, c


class LSTMSteps(torch.autograd.Function):
    """One LSTM along unpadded columns, its derivative written by hand.

    The input's share of all gates is one product, and so are the gradients of each weight; a step
    adds U h of the sentences that are still going on, a slice, in place. Nothing is copied.
    """

    @staticmethod
    def forward(ctx, x, W, U, b, start, columns):  # type: ignore[no-untyped-def]
        """See lstm_steps."""
        h, k, sizes = U.shape[1], columns.sizes[0], columns.sizes
        gates = torch.addmm(b, x, W.t())
        states = StepStates(gates, h, k, start)
        Ut, at = U.t(), 0
        for n in sizes:
            states.step(at, n, Ut if at or start is not None else None)
            at += n
        ctx.save_for_backward(x, W, U)
        ctx.states, ctx.columns, ctx.started = states, columns, start is not None
        return states.h[k:], states.last_c(sizes)

    @staticmethod
    def backward(ctx, dh, dc_last):  # type: ignore[no-untyped-def]
        """Gradients of x, W, U, b and start."""
        x, W, U = ctx.saved_tensors
        columns: Columns = ctx.columns
        d, dh_0, dc_0 = ctx.states.backward(U, dh, dc_last, columns.sizes, started=ctx.started)
        before = ctx.states.h.index_select(0, columns.before)
        dstart = torch.cat([dh_0, dc_0], dim=1) if ctx.started else None
        dx = d @ W if ctx.needs_input_grad[0] else None
        return dx, d.t() @ x, d.t() @ before, d.sum(0), dstart, None


class StepStates:
    """What the steps of an LSTM along unpadded columns compute and keep.

    gates (n, 4 h): first what the inputs give, then i, f, g, o. h, c (k + n, h): k first states,
    then those of all steps. tanh_c (n, h).
    """

    def __init__(self, gates: Tensor, h: int, k: int, start: Tensor | None) -> None:
        self.gates, self.k = gates, k
        self.h, self.c = (gates.new_empty(k + len(gates), h) for _ in range(2))
        self.tanh_c = gates.new_empty(len(gates), h)
        self.before = 0  # first row of the states before the next step
        for states, first in ((self.h, 0), (self.c, h)):
            if start is None:
                states[:k] = 0
            else:
                states[:k] = start[:, first : first + h]

    def step(self, at: int, n: int, Ut: Tensor | None) -> Tensor:
        """Rows at to at + n, from the first n states before; Ut: None where those are zeros."""
        h, own = self.h.shape[1], slice(self.k + at, self.k + at + n)
        before = slice(self.before, self.before + n)
        gates, c, tanh_c = self.gates[at : at + n], self.c[own], self.tanh_c[at : at + n]
        if Ut is not None:
            gates.addmm_(self.h[before], Ut)
        gates[:, : 2 * h].sigmoid_()
        gates[:, 3 * h :].sigmoid_()
        i, f, g, o = gates.chunk(4, 1)
        g.tanh_()
        torch.mul(i, g, out=c)
        if Ut is not None:
            c.addcmul_(f, self.c[before])
        torch.tanh(c, out=tanh_c)
        self.before = own.start
        return torch.mul(o, tanh_c, out=self.h[own])

    def last_c(self, sizes: Sequence[int]) -> Tensor:
        """Each column's last c (k, h)."""
        found, at = [], self.k + len(self.gates)
        for n, following in zip(reversed(sizes), [0, *reversed(sizes[1:])], strict=True):
            at -= n
            if n > following:
                found.append(self.c[at + following : at + n])
        return torch.cat(found)

    def backward(
        self, U: Tensor, dh: Tensor, dc_last: Tensor, sizes: Sequence[int], *, started: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the gates (n, 4 h) before their non-linearities, and of h_0 and c_0."""
        h = U.shape[1]
        d = torch.empty_like(self.gates)
        dh_now, dc_now = dh.new_zeros(self.k, h), dc_last.clone()
        end = len(d)
        for n, n_before in zip(reversed(sizes), [*reversed(sizes[:-1]), self.k], strict=True):
            at = end - n
            first = at == 0 and not started
            before = slice(self.k + at - n_before, self.k + at - n_before + n)
            dh_n, dc_n = dh_now[:n], dc_now[:n]
            dh_n += dh[at:end]
            own = d[at:end]
            gates, tanh_c = self.gates[at:end], self.tanh_c[at:end]
            i, f, g, o = gates.chunk(4, 1)
            di, df, dg, do = own.chunk(4, 1)
            torch.mul(dh_n, tanh_c, out=do)
            dc_n += aten.tanh_backward(dh_n * o, tanh_c)
            torch.mul(dc_n, g, out=di)
            torch.mul(dc_n, self.c[before], out=df)
            torch.mul(dc_n, i, out=dg)
            through_sigmoid(own[:, : 2 * h], gates[:, : 2 * h])
            aten.tanh_backward.grad_input(dg, g, grad_input=dg)
            through_sigmoid(do, o)
            if not first:
                dc_n *= f
                torch.mm(own, U, out=dh_n)
            end = at
        return d, dh_now, dc_now


def through_sigmoid(dy: Tensor, y: Tensor) -> None:
    """Turn the gradient of y = sigmoid(x) into that of x, in place."""
    aten.sigmoid_backward.grad_input(dy, y, grad_input=dy)
