"""A decoder of words, step by step, all that a step computes within it, scores and loss included.

Only gradients wait until the last step is done: of each weight they are one product over all steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from systems.on_torch.parts.lstm import StepStates
from systems.on_torch.parts.output_layer import Scores
from systems.on_torch.parts.products import product
from systems.on_torch.parts.rows import Columns

aten = torch.ops.aten


class DecoderWeights(NamedTuple):
    """x = tanh(E word + e); an LSTM cell with W x + U h + b; scores W_out h.

    table (words, n), E (h, n), W, U (4 h, h), W_out (h, words).
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
    kind: type[StepStates]


def decode(state: Tensor, weights: DecoderWeights, inputs: DecoderInputs) -> tuple[Tensor, Tensor]:
    """Summed loss and h of all rows (n, h), from first states h and c side by side (k, 2 h)."""
    loss, hidden = _Decoder.apply(inputs, state, *weights)  # type: ignore[no-untyped-call]
    return loss, hidden


class _Decoder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, state, *weights):  # type: ignore[no-untyped-def]
        w, n, k = DecoderWeights(*weights), len(inputs.read), len(state)
        h = w.U.shape[1]
        states = inputs.kind(state.new_empty(n, 4 * h), h, k, state)
        words, x = state.new_empty(n, w.table.shape[1]), state.new_empty(n, h)
        scores = Scores(w.W_out, None, keep=not torch.is_inference_mode_enabled())
        losses, at = [], 0
        for size in inputs.columns.sizes:
            rows = slice(at, at + size)
            torch.index_select(w.table, 0, inputs.read[rows], out=words[rows])
            torch.tanh(product(words[rows], w.E, w.e), out=x[rows])
            states.gates[rows] = product(x[rows], w.W, w.b)
            losses.append(scores.add(states.step(at, size, w.U), inputs.labels[rows]))
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
        dh, dW_out, _ = scores.gradients(states.h[k:], w.W_out, dloss)
        nothing = dh.new_zeros(k, dh.shape[1])
        d, dh_0, dc_0 = states.backward(w.U, dh, nothing, columns.sizes, started=True)
        dx = aten.tanh_backward(product(d, w.W.t()), x)
        dtable = torch.sparse_coo_tensor(
            ctx.inputs.read[None], product(dx, w.E.t()), w.table.shape, check_invariants=False
        )
        before, dt = states.h.index_select(0, columns.before), d.t().contiguous()
        dweights = DecoderWeights(
            table=dtable,
            E=product(dx.t().contiguous(), words.t()),
            e=dx.sum(0),
            W=product(dt, x.t()),
            U=product(dt, before.t()),
            b=d.sum(0),
            W_out=dW_out,
        )
        return None, torch.cat([dh_0, dc_0], dim=1), *dweights
