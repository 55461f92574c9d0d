"""A decoder of words, step by step, all that a step computes within it, scores and loss included.

Only gradients wait until the last step is done: of each weight they are one product over all steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from systems.on_torch.parts.lstm import StepStates
from systems.on_torch.parts.output_layer import Scratch, output_gradients, score, to_loss_gradient
from systems.on_torch.parts.rows import Columns

aten = torch.ops.aten


class DecoderWeights(NamedTuple):
    """x = tanh(E word + e); an LSTM cell with W x + U h + b; scores W_out h.

    table (words, n), E (h, n), W, U (4 h, h), W_out (words, h).
    """

    table: Tensor
    E: Tensor
    e: Tensor
    W: Tensor
    U: Tensor
    b: Tensor
    W_out: Tensor


class DecoderInputs(NamedTuple):
    """Words that are read and to be predicted (n,), by row of columns; how steps are computed."""

    read: Tensor
    labels: Tensor
    columns: Columns
    scratch: Scratch
    kind: type[StepStates]


def decode(state: Tensor, weights: DecoderWeights, inputs: DecoderInputs) -> tuple[Tensor, Tensor]:
    """Summed loss and h of all rows (n, h), from first states h and c side by side (k, 2 h)."""
    loss, hidden = _Decoder.apply(inputs, state, *weights)  # type: ignore[no-untyped-call]
    return loss, hidden


class _Decoder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, state, *weights):  # type: ignore[no-untyped-def]
        w, n, k = DecoderWeights(*weights), len(inputs.read), len(state)
        h, labels = w.U.shape[1], inputs.labels[:, None]
        states = inputs.kind(state.new_empty(n, 4 * h), h, k, state)
        words, x = state.new_empty(n, w.table.shape[1]), state.new_empty(n, h)
        scores = inputs.scratch.rows(n, len(w.W_out), state)
        Et, Wt, Ut, Wt_out = w.E.t(), w.W.t(), w.U.t(), w.W_out.t()
        losses, at = [], 0
        for size in inputs.columns.sizes:
            rows = slice(at, at + size)
            torch.index_select(w.table, 0, inputs.read[rows], out=words[rows])
            torch.addmm(w.e, words[rows], Et, out=x[rows]).tanh_()
            torch.addmm(w.b, x[rows], Wt, out=states.gates[rows])
            hidden = states.step(at, size, Ut)
            score(hidden, Wt_out, None, scores[rows])
            losses.append(to_loss_gradient(scores[rows], labels[rows]).sum())
            at += size
        ctx.save_for_backward(*weights)
        ctx.inputs, ctx.states, ctx.kept = inputs, states, (words, x, scores)
        hidden = states.h[k:]
        ctx.mark_non_differentiable(hidden)
        return torch.stack(losses).sum(), hidden

    @staticmethod
    def backward(ctx, dloss, _):  # type: ignore[no-untyped-def]
        w, states, columns = DecoderWeights(*ctx.saved_tensors), ctx.states, ctx.inputs.columns
        words, x, scores = ctx.kept
        k = states.k
        dh, dW_out, _ = output_gradients(scores, states.h[k:], w.W_out, dloss, False)
        nothing = dh.new_zeros(k, dh.shape[1])
        d, dh_0, dc_0 = states.backward(w.U, dh, nothing, columns.sizes, started=True)
        dx = aten.tanh_backward(d @ w.W, x)
        dtable = torch.sparse_coo_tensor(
            ctx.inputs.read[None], dx @ w.E, w.table.shape, check_invariants=False
        )
        before = states.h.index_select(0, columns.before)
        dweights = DecoderWeights(
            table=dtable,
            E=dx.t() @ words,
            e=dx.sum(0),
            W=d.t() @ x,
            U=d.t() @ before,
            b=d.sum(0),
            W_out=dW_out,
        )
        return None, torch.cat([dh_0, dc_0], dim=1), *dweights
