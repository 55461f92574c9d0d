"""LSTM weights as nn.LSTM holds them, with one bias, and a recurrence along unpadded columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from systems.on_torch.parts.nonlinear import tanh
from systems.on_torch.parts.products import product
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
    x: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor,
    start: Tensor | None,
    columns: Columns,
    kind: type[StepStates],
) -> tuple[Tensor, Tensor]:
    """h (n, h), in rows of columns, and the last c of each (k, h).

    x (n, n_inputs): rows of columns. W (4 h, n_inputs), U (4 h, h), b (4 h,). start: h_0 and c_0
    side by side, (k, 2 h), or None for zeros.
    """
    h, c = LSTMSteps.apply(x, W, U, b, start, columns, kind)  # type: ignore[no-untyped-call]
    return h, c


class LSTMSteps(torch.autograd.Function):
    """One LSTM along unpadded columns, its derivative written by hand.

    The input's share of all gates is one product, and so are the gradients of each weight; a step
    adds U h of the sentences that are still going on, a slice, in place. Nothing is copied.
    """

    @staticmethod
    def forward(ctx, x, W, U, b, start, columns, kind):  # type: ignore[no-untyped-def]
        """See lstm_steps."""
        h, k, sizes = U.shape[1], columns.sizes[0], columns.sizes
        gates = product(x, W, b)
        states = kind(gates, h, k, start)
        at = 0
        for n in sizes:
            states.step(at, n, U if at or start is not None else None)
            at += n
        ctx.save_for_backward(x, W, U)
        ctx.states, ctx.columns, ctx.started = states, columns, start is not None
        return states.h[k:], states.last_c(columns)

    @staticmethod
    def backward(ctx, dh, dc_last):  # type: ignore[no-untyped-def]
        """Gradients of x, W, U, b and start."""
        x, W, U = ctx.saved_tensors
        columns: Columns = ctx.columns
        d, dh_0, dc_0 = ctx.states.backward(U, dh, dc_last, columns.sizes, started=ctx.started)
        before = ctx.states.h.index_select(0, columns.before)
        dstart = torch.cat([dh_0, dc_0], dim=1) if ctx.started else None
        dx, dt = product(d, W.t()) if ctx.needs_input_grad[0] else None, d.t().contiguous()
        return dx, product(dt, x.t()), product(dt, before.t()), d.sum(0), dstart, None, None


class StepStates:
    """What the steps of an LSTM along unpadded columns compute and keep.

    gates (n, 4 h): first what the inputs give, then i, f, g, o. h, c (k + n, h): k first states,
    then those of all steps. tanh_c (n, h). Under inference_mode, where no `backward` follows, c and
    tanh_c are (k, h): the newest of each column.
    """

    def __init__(self, gates: Tensor, h: int, k: int, start: Tensor | None) -> None:
        self.gates, self.k, self.keep = gates, k, not torch.is_inference_mode_enabled()
        n = len(gates)
        self.h = gates.new_empty(k + n, h)
        self.c = gates.new_empty(k + n if self.keep else k, h)
        self.tanh_c = gates.new_empty(n if self.keep else k, h)
        self.before = 0  # first row of the states before the next step
        for states, first in ((self.h, 0), (self.c, h)):
            if start is None:
                states[:k] = 0
            else:
                states[:k] = start[:, first : first + h]

    def step(self, at: int, n: int, U: Tensor | None) -> Tensor:
        """Rows at to at + n, from the first n states before; U: None where those are zeros."""
        own = slice(self.k + at, self.k + at + n)
        before = slice(self.before, self.before + n)
        gates, new = self.gates[at : at + n], slice(0, n)
        if U is not None:
            gates += product(self.h[before], U)
        c_before = None if U is None else self.c[before if self.keep else new]
        c = self.c[own if self.keep else new]
        tanh_c = self.tanh_c[slice(at, at + n) if self.keep else new]
        self.advance(gates, c_before, c, tanh_c, self.h[own])
        self.before = own.start
        return self.h[own]

    def last_c(self, columns: Columns) -> Tensor:
        """The last c of each column (k, h)."""
        return self.c.index_select(0, columns.last + self.k) if self.keep else self.c

    @staticmethod
    def advance(
        gates: Tensor, c_before: Tensor | None, c: Tensor, tanh_c: Tensor, h: Tensor
    ) -> None:
        """From gates before their non-linearities to the next state; all but c_before is written.

        c_before: None where the state before is zeros; may be the memory of c.
        """
        width = c.shape[1]
        gates[:, : 2 * width].sigmoid_()
        gates[:, 3 * width :].sigmoid_()
        i, f, g, o = gates.chunk(4, 1)
        tanh(g, g)
        if c_before is None:
            torch.mul(i, g, out=c)
        else:
            torch.mul(f, c_before, out=c)
            c.addcmul_(i, g)
        tanh(c, tanh_c)
        torch.mul(o, tanh_c, out=h)

    def backward(
        self, U: Tensor, dh: Tensor, dc_last: Tensor, sizes: Sequence[int], *, started: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the gates (n, 4 h) before their non-linearities, and of h_0 and c_0."""
        d, Ut = torch.empty_like(self.gates), U.t()
        dh_now, dc_now = dh.new_zeros(self.k, U.shape[1]), dc_last.clone()
        end = len(d)
        for n, n_before in zip(reversed(sizes), [*reversed(sizes[:-1]), self.k], strict=True):
            at = end - n
            before = slice(self.k + at - n_before, self.k + at - n_before + n)
            dh_now[:n] += dh[at:end]
            self.retreat(
                dh_now[:n],
                dc_now[:n],
                self.gates[at:end],
                self.tanh_c[at:end],
                self.c[before],
                d[at:end],
            )
            if at or started:
                dh_now[:n] = product(d[at:end], Ut)
            end = at
        return d, dh_now, dc_now

    @staticmethod
    def retreat(
        dh: Tensor, dc: Tensor, gates: Tensor, tanh_c: Tensor, c_before: Tensor, d: Tensor
    ) -> None:
        """Write d, the gradient of the gates before their non-linearities; dc: that of c_before."""
        width = dh.shape[1]
        i, f, g, o = gates.chunk(4, 1)
        di, df, dg, do = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc += aten.tanh_backward(dh * o, tanh_c)
        torch.mul(dc, g, out=di)
        torch.mul(dc, c_before, out=df)
        torch.mul(dc, i, out=dg)
        through_sigmoid(d[:, : 2 * width], gates[:, : 2 * width])
        aten.tanh_backward.grad_input(dg, g, grad_input=dg)
        through_sigmoid(do, o)
        dc *= f


def through_sigmoid(dy: Tensor, y: Tensor) -> None:
    """Turn the gradient of y = sigmoid(x) into that of x, in place."""
    aten.sigmoid_backward.grad_input(dy, y, grad_input=dy)
