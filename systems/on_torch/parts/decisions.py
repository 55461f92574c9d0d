"""A parser's decisions, step by step, scores and loss of each step within it.

A layer over joined vectors of tokens is a sum of what each token's gives in its slot. That is one
product over all tokens, before the first decision; a step adds up what the tokens give that it
looks at. Only gradients wait until the last step is done.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from systems.on_torch.parts.output_layer import Scores
from systems.on_torch.parts.products import product

aten = torch.ops.aten


class DecisionWeights(NamedTuple):
    """Scores W_out tanh(W_mlp [vectors of all slots] + b_mlp) + b_out.

    W_mlp (mlp, n_slots * h), W_out (mlp, n_scores).
    """

    W_mlp: Tensor
    b_mlp: Tensor
    W_out: Tensor
    b_out: Tensor


class DecisionInputs(NamedTuple):
    """Decisions (n,), step by step.

    looked_at (n, n_slots): rows of the vectors that each decision reads. labels (n,): the right
    ones. sizes: decisions of each step.
    """

    looked_at: Tensor
    labels: Tensor
    sizes: list[int]


def decide(
    vectors: Tensor, weights: DecisionWeights, inputs: DecisionInputs
) -> tuple[Tensor, Tensor]:
    """Summed loss and what scores are read from (n, mlp); vectors: of tokens (n_tokens, h)."""
    loss, hidden = _Decisions.apply(inputs, vectors, *weights)  # type: ignore[no-untyped-call]
    return loss, hidden


class _Decisions(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, vectors, *weights):  # type: ignore[no-untyped-def]
        w, (n, n_slots) = DecisionWeights(*weights), inputs.looked_at.shape
        mlp = len(w.b_mlp)
        by_slot = slotted(w.W_mlp, n_slots)
        given = product(vectors, by_slot.t()).view(-1, n_slots, mlp)
        given[:, 0] += w.b_mlp  # every decision reads slot 0 once
        slots = torch.arange(n_slots, device=vectors.device)
        rows = (inputs.looked_at * n_slots + slots).view(-1)
        bags = torch.arange(0, max(inputs.sizes) * n_slots, n_slots, device=vectors.device)
        hidden = vectors.new_empty(n, mlp)
        scores = Scores(w.W_out, w.b_out, keep=not torch.is_inference_mode_enabled())
        table, losses, at = given.view(-1, mlp), [], 0
        for size in inputs.sizes:
            own = slice(at, at + size)
            read = rows[at * n_slots : (at + size) * n_slots]
            summed = torch.embedding_bag(table, read, bags[:size], False, 0, False, None, False)[0]
            torch.tanh(summed, out=hidden[own])
            losses.append(scores.add(hidden[own], inputs.labels[own]))
            at += size
        ctx.save_for_backward(vectors, w.W_out, by_slot, hidden)
        ctx.kept = rows, scores
        ctx.mark_non_differentiable(hidden)
        return torch.stack(losses).sum(), hidden

    @staticmethod
    def backward(ctx, dloss, _):  # type: ignore[no-untyped-def]
        vectors, W_out, by_slot, hidden = ctx.saved_tensors
        rows, scores = ctx.kept
        dhidden, dW_out, db_out = scores.gradients(hidden, W_out, dloss)
        dsum = aten.tanh_backward(dhidden, hidden)
        n, mlp = dsum.shape
        n_slots = len(rows) // n
        dgiven = dsum.new_zeros(len(vectors) * n_slots, mlp)
        dgiven.index_add_(0, rows, dsum.repeat_interleave(n_slots, 0))
        dgiven = dgiven.view(len(vectors), -1)
        dW_mlp = (
            product(vectors.t().contiguous(), dgiven.t())
            .view(-1, n_slots, mlp)
            .permute(2, 1, 0)
            .reshape(mlp, -1)
        )
        return None, product(dgiven, by_slot), dW_mlp, dsum.sum(0), dW_out, db_out


def slotted(W_mlp: Tensor, n_slots: int) -> Tensor:
    """The layer's columns of each slot side by side, (h, n_slots * mlp)."""
    mlp, width = W_mlp.shape
    return W_mlp.view(mlp, n_slots, width // n_slots).permute(2, 1, 0).reshape(-1, n_slots * mlp)
