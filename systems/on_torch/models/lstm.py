"""LSTMs along the sentences of a mini-batch, by hand and by nn.LSTM, from positions to positions.

Columnwise is the fastest method in training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from dynbatch.systems.on_torch.layers import Start
from dynbatch.systems.on_torch.products import aten, backpropagate_sigmoid, multiply, tanh
from dynbatch.systems.on_torch.rows import (
    RowPermutation,
    UnpaddedColumns,
    arrange_buckets,
    arrange_columns,
)
from dynbatch.systems.plans.sentences import Lengths


def run_lstm_steps(
    x: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor,
    start: Tensor | None,
    columns: UnpaddedColumns,
    kind: type[StepStates],
) -> tuple[Tensor, Tensor]:
    """Run all steps; return h (n, h) in rows of columns, and the last c of each column (k, h).

    Args:
        x: (n, n_inputs) rows of columns.
        W: (4 h, n_inputs).
        U: (4 h, h).
        b: (4 h,).
        start: (k, 2 h) initial states h_0 and c_0; None: zeros.
        kind: implementation of a step.
    """
    h, c = LSTMSteps.apply(x, W, U, b, start, columns, kind)  # type: ignore[no-untyped-call]
    return h, c


class LSTMSteps(torch.autograd.Function):
    """One LSTM along unpadded columns, with a derivative written by hand.

    One product computes the inputs' part of all gates, and one product each the gradients of every
    weight. A step adds U h in place to the slice of sentences that have not ended. Nothing is
    copied.
    """

    @staticmethod
    def forward(ctx, x, W, U, b, start, columns, kind):  # type: ignore[no-untyped-def]
        h, k, sizes = U.shape[1], columns.sizes[0], columns.sizes
        gates = multiply(x, W, b)
        states = kind(gates, h, k, start)
        at = 0
        for n in sizes:
            states.step(at, n, U if at or start is not None else None)
            at += n
        ctx.save_for_backward(x, W, U)
        ctx.states, ctx.columns, ctx.started = states, columns, start is not None
        return states.h[k:], states.take_last_c(columns)

    @staticmethod
    def backward(ctx, dh, dc_last):  # type: ignore[no-untyped-def]
        """Return the gradients of x, W, U, b and start."""
        x, W, U = ctx.saved_tensors
        columns: UnpaddedColumns = ctx.columns
        d, dh_0, dc_0 = ctx.states.backward(U, dh, dc_last, columns.sizes, started=ctx.started)
        before = ctx.states.h.index_select(0, columns.before)
        dstart = torch.cat([dh_0, dc_0], dim=1) if ctx.started else None
        dx, dt = multiply(d, W.t()) if ctx.needs_input_grad[0] else None, d.t().contiguous()
        return dx, multiply(dt, x.t()), multiply(dt, before.t()), d.sum(0), dstart, None, None


class StepStates:
    """Intermediate values of an LSTM's steps along unpadded columns.

    Under inference_mode, where no `backward` follows, c and tanh_c are (k, h): the latest of each
    column.

    Attributes:
        gates: (n, 4 h) first the inputs' part, then i, f, g, o.
        h: (k + n, h) k initial states, then those of all steps.
        c: (k + n, h) as h.
        tanh_c: (n, h).
    """

    def __init__(self, gates: Tensor, h: int, k: int, start: Tensor | None) -> None:
        self.gates, self.k, self.keep = gates, k, not torch.is_inference_mode_enabled()
        n = len(gates)
        self.h = gates.new_empty(k + n, h)
        self.c = gates.new_empty(k + n if self.keep else k, h)
        self.tanh_c = gates.new_empty(n if self.keep else k, h)
        self.before = 0  # first row of the states that the next step reads
        for states, first in ((self.h, 0), (self.c, h)):
            if start is None:
                states[:k] = 0
            else:
                states[:k] = start[:, first : first + h]

    def step(self, at: int, n: int, U: Tensor | None) -> Tensor:
        """Compute rows at to at + n, given the n states before them; return their h.

        U is None if these states are zeros.
        """
        own = slice(self.k + at, self.k + at + n)
        before = slice(self.before, self.before + n)
        gates, new = self.gates[at : at + n], slice(0, n)
        if U is not None:
            gates += multiply(self.h[before], U)
        c_before = None if U is None else self.c[before if self.keep else new]
        c = self.c[own if self.keep else new]
        tanh_c = self.tanh_c[slice(at, at + n) if self.keep else new]
        self.advance(gates, c_before, c, tanh_c, self.h[own])
        self.before = own.start
        return self.h[own]

    def take_last_c(self, columns: UnpaddedColumns) -> Tensor:
        """Return the last c of each column (k, h)."""
        return self.c.index_select(0, columns.last + self.k) if self.keep else self.c

    @staticmethod
    def advance(
        gates: Tensor, c_before: Tensor | None, c: Tensor, tanh_c: Tensor, h: Tensor
    ) -> None:
        """Compute the next state from pre-activations; write all arguments except c_before.

        c_before is None if the state before is zeros. It may share memory with c.
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
        """Return the gradients of the pre-activations (n, 4 h), of h_0 and of c_0."""
        d, Ut = torch.empty_like(self.gates), U.t()
        # The last c of one sentence may be a part of a row: another stride, to compile for.
        dc_now = dc_last.clone(memory_format=torch.contiguous_format)
        dh_now = dh.new_zeros(self.k, U.shape[1])
        end = len(d)
        for n, n_before in zip(reversed(sizes), [*reversed(sizes[:-1]), self.k], strict=True):
            at = end - n
            before = slice(self.k + at - n_before, self.k + at - n_before + n)
            dh_now[:n] += dh[at:end]
            self.backpropagate_step(
                dh_now[:n],
                dc_now[:n],
                self.gates[at:end],
                self.tanh_c[at:end],
                self.c[before],
                d[at:end],
            )
            if at or started:
                dh_now[:n] = multiply(d[at:end], Ut)
            end = at
        return d, dh_now, dc_now

    @staticmethod
    def backpropagate_step(
        dh: Tensor, dc: Tensor, gates: Tensor, tanh_c: Tensor, c_before: Tensor, d: Tensor
    ) -> None:
        """Write the gradient of the pre-activations to d, and that of c_before to dc."""
        width = dh.shape[1]
        i, f, g, o = gates.chunk(4, 1)
        di, df, dg, do = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc += aten.tanh_backward(dh * o, tanh_c)
        torch.mul(dc, g, out=di)
        torch.mul(dc, c_before, out=df)
        torch.mul(dc, i, out=dg)
        backpropagate_sigmoid(d[:, : 2 * width], gates[:, : 2 * width])
        aten.tanh_backward.grad_input(dg, g, grad_input=dg)
        backpropagate_sigmoid(do, o)
        dc *= f


class Recurrence(ABC):
    """Method to run LSTMs along sentences.

    Attributes:
        kind: implementation of a step, if steps are separate.
    """

    kind: type[StepStates] = StepStates

    @abstractmethod
    def plan(self, lengths: Lengths, device: torch.device) -> Any:
        """Plan a mini-batch of sentences of these lengths; timed."""

    @abstractmethod
    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """Return h of the top layer at every position (n, h).

        Args:
            lstm: the LSTM.
            x: (n, n_inputs) by position.
            plan: plan of the mini-batch.
            start: initial states; None: zeros.
            against: read from the last word to the first.
        """

    def compute_last_states(
        self, lstm: nn.LSTM, rows: Tensor, columns: UnpaddedColumns, start: Start
    ) -> tuple[Tensor, Tensor]:
        """Return h and c of a single layer after the last word of each column (k, h).

        It runs step by step, because nn.LSTM does not return c before padding.

        Args:
            rows: (n, n_inputs) rows of the columns.
        """
        W, U, b, _ = lstm.all_weights[0]
        first = concatenate_initial_states(start, 0, columns.order)
        h, c = run_lstm_steps(rows, W, U, b, first, columns, self.kind)
        return h.index_select(0, columns.last), c


@dataclass(frozen=True)
class Columnwise(Recurrence):
    """LSTM step by step over sentences that have not ended, longest first, without padding."""

    kind: type[StepStates] = StepStates

    def plan(self, lengths: Lengths, device: torch.device) -> UnpaddedColumns:
        """Plan the rows of all words."""
        return arrange_columns(lengths, device)

    def run(
        self,
        lstm: nn.LSTM,
        x: Tensor,
        plan: UnpaddedColumns,
        start: Start | None = None,
        *,
        against: bool,
    ) -> Tensor:
        """Return h of the top layer at every position, computed layer by layer."""
        order = plan.against if against else plan.along
        rows = order.arrange(x)
        for layer in range(lstm.num_layers):
            first = None if start is None else concatenate_initial_states(start, layer, plan.order)
            W, U, b, _ = lstm.all_weights[layer]
            rows, _ = run_lstm_steps(rows, W, U, b, first, plan, self.kind)
        return order.restore(rows)


def concatenate_initial_states(start: Start, layer: int, order: Tensor) -> Tensor:
    """Return h_0 and c_0 of a layer for every column, concatenated (k, 2 h)."""
    joined = torch.cat([start[0][layer], start[1][layer]], dim=-1)
    if joined.ndim == 1:
        return joined.expand(len(order), len(joined))
    return joined.index_select(0, order)


@dataclass(frozen=True)
class PaddedRecurrence(Recurrence):
    """nn.LSTM over rectangles, with padding after each sentence's end, from which nothing is read.

    Words of sentences that are read backwards are reversed first, so that padding comes last there,
    too.
    """

    n_buckets: int

    def plan(self, lengths: Lengths, device: torch.device) -> Any:
        """Plan the rows of all words in the rectangles."""
        return arrange_buckets(lengths, self.n_buckets, device)

    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """Return h at every position, by one nn.LSTM call per rectangle."""
        order: RowPermutation = plan.against if against else plan.along
        parts = torch.split(order.arrange(x), [n * k for n, k in plan.shapes])
        sentences = torch.split(plan.order, [k for _, k in plan.shapes])
        outputs = []
        for part, (n_steps, k), sentence_ids in zip(parts, plan.shapes, sentences, strict=True):
            h, _ = lstm(part.view(n_steps, k, -1), build_initial_states(start, sentence_ids))
            outputs.append(h.reshape(n_steps * k, -1))
        return order.restore(torch.cat(outputs) if len(outputs) > 1 else outputs[0])


class PackedRecurrence(Recurrence):
    """nn.LSTM over a PackedSequence without padding; on a CPU, by oneDNN only for equal lengths."""

    def plan(self, lengths: Lengths, device: torch.device) -> Any:
        """Plan the columns, whose sizes PackedSequence needs."""
        return arrange_columns(lengths, device)

    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """Return h at every position, by one nn.LSTM call."""
        order: RowPermutation = plan.against if against else plan.along
        packed = PackedSequence(order.arrange(x), torch.tensor(plan.sizes))
        h, _ = lstm(packed, build_initial_states(start, plan.order))
        return order.restore(h.data)

    def compute_last_states(
        self, lstm: nn.LSTM, rows: Tensor, columns: UnpaddedColumns, start: Start
    ) -> tuple[Tensor, Tensor]:
        """Return h and c, by one nn.LSTM call, because nothing is padded."""
        packed = PackedSequence(rows, torch.tensor(columns.sizes))
        _, (h, c) = lstm(packed, build_initial_states(start, columns.order))
        return h[0], c[0]


def build_initial_states(start: Start | None, order: Tensor) -> Start | None:
    """Return h_0 and c_0 for nn.LSTM, (layers, k, h).

    Args:
        start: initial states; None: zeros.
        order: (k,) sentence of each column.
    """
    if start is None:
        return None
    h_0, c_0 = (_expand_columns(first, order) for first in start)
    return h_0, c_0


def _expand_columns(first: Tensor, order: Tensor) -> Tensor:
    if first.ndim == 3:
        return first.index_select(1, order)
    return first[:, None].expand(-1, len(order), -1).contiguous()
