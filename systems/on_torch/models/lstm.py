"""LSTMs along the sentences of a mini-batch, by hand and by nn.LSTM; places in, places out.

Columnwise is the fastest of the ways in training; docs/systems.md, "Variants that were tried", has
the numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from systems.on_torch.layers import Start
from systems.on_torch.products import aten, product, tanh, through_sigmoid
from systems.on_torch.rows import Columns, Order, buckets, columns
from systems.plans.trees import Ids


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


class Recurrence(ABC):
    """How LSTMs run along sentences; kind: how a step is computed, where each is by itself."""

    kind: type[StepStates] = StepStates

    @abstractmethod
    def plan(self, lengths: Ids, device: torch.device) -> Any:
        """What a mini-batch of sentences of these lengths needs; timed."""

    @abstractmethod
    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """h of the top layer at every place (n, h).

        x (n, n_inputs): by place. start: None for zeros. against: from the last word to the first.
        """

    def last(
        self, lstm: nn.LSTM, rows: Tensor, columns: Columns, start: Start
    ) -> tuple[Tensor, Tensor]:
        """h and c of a single layer behind the last word of each column (k, h).

        rows (n, n_inputs): of the columns. Step by step: nn.LSTM has no c before a padded end.
        """
        W, U, b, _ = lstm.all_weights[0]
        first = side_by_side(start, 0, columns.order)
        h, c = lstm_steps(rows, W, U, b, first, columns, self.kind)
        return h.index_select(0, columns.last), c


@dataclass(frozen=True)
class Columnwise(Recurrence):
    """Step by step over sentences that still go on, the longest first: no padding, no masks."""

    kind: type[StepStates] = StepStates

    def plan(self, lengths: Ids, device: torch.device) -> Columns:
        """Rows of all words."""
        return columns(lengths, device)

    def run(
        self,
        lstm: nn.LSTM,
        x: Tensor,
        plan: Columns,
        start: Start | None = None,
        *,
        against: bool,
    ) -> Tensor:
        """Layer by layer."""
        order = plan.against if against else plan.along
        rows = order.arrange(x)
        for layer in range(lstm.num_layers):
            first = None if start is None else side_by_side(start, layer, plan.order)
            W, U, b, _ = lstm.all_weights[layer]
            rows, _ = lstm_steps(rows, W, U, b, first, plan, self.kind)
        return order.restore(rows)


def side_by_side(start: Start, layer: int, order: Tensor) -> Tensor:
    """h_0 and c_0 of a layer side by side, for every column (k, 2 h); order: their sentences."""
    joined = torch.cat([start[0][layer], start[1][layer]], dim=-1)
    if joined.ndim == 1:
        return joined.expand(len(order), len(joined))
    return joined.index_select(0, order)


@dataclass(frozen=True)
class Padded(Recurrence):
    """nn.LSTM over rectangles, padded behind each sentence's end, where nothing is read.

    Words of a sentence that is read backwards are put in reverse order before, so that there, too,
    padding comes last.
    """

    n_buckets: int

    def plan(self, lengths: Ids, device: torch.device) -> Any:
        """Rows of all words in the rectangles."""
        return buckets(lengths, self.n_buckets, device)

    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """A call of nn.LSTM for each rectangle."""
        order: Order = plan.against if against else plan.along
        parts = torch.split(order.arrange(x), [n * k for n, k in plan.shapes])
        sentences = torch.split(plan.order, [k for _, k in plan.shapes])
        found = []
        for part, (n_steps, k), of in zip(parts, plan.shapes, sentences, strict=True):
            h, _ = lstm(part.view(n_steps, k, -1), first_states(start, of))
            found.append(h.reshape(n_steps * k, -1))
        return order.restore(torch.cat(found) if len(found) > 1 else found[0])


class Packed(Recurrence):
    """nn.LSTM over a PackedSequence: no padding, but on a CPU another kernel (not oneDNN's)."""

    def plan(self, lengths: Ids, device: torch.device) -> Any:
        """Columns, and their sizes as PackedSequence wants them."""
        return columns(lengths, device)

    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """One call of nn.LSTM."""
        order: Order = plan.against if against else plan.along
        packed = PackedSequence(order.arrange(x), torch.tensor(plan.sizes))
        h, _ = lstm(packed, first_states(start, plan.order))
        return order.restore(h.data)

    def last(
        self, lstm: nn.LSTM, rows: Tensor, columns: Columns, start: Start
    ) -> tuple[Tensor, Tensor]:
        """By one call of nn.LSTM, which gives them where nothing is padded."""
        packed = PackedSequence(rows, torch.tensor(columns.sizes))
        _, (h, c) = lstm(packed, first_states(start, columns.order))
        return h[0], c[0]


def first_states(start: Start | None, order: Tensor) -> Start | None:
    """h_0 and c_0 as nn.LSTM takes them, (layers, k, h); order (k,): each column's sentence."""
    if start is None:
        return None
    h_0, c_0 = (_by_column(first, order) for first in start)
    return h_0, c_0


def _by_column(first: Tensor, order: Tensor) -> Tensor:
    if first.ndim == 3:
        return first.index_select(1, order)
    return first[:, None].expand(-1, len(order), -1).contiguous()
