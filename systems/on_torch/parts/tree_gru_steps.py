"""All levels of a Tree-GRU as one function, its derivative written by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from systems.on_torch.parts.side_products import SideWeights

aten = torch.ops.aten


class TreeGRUSteps(torch.autograd.Function):
    """h (n, h) of all rows of a plan, from x (n_leaves, h), weights as nn.Linear has them.

    Both children of a vertex take their steps in the same calls; gradients of each weight are one
    product over all levels.
    """

    @staticmethod
    def forward(ctx, x, W, b_leaf, W_c, b_leaf_c, U_1, U_2, b, U_c1, U_c2, b_c, plan):  # type: ignore[no-untyped-def]
        """States, level after level."""
        n_leaves = len(x)
        h = x.new_empty(len(plan.places), x.shape[1])
        leaves = GRUSteps(SideWeights.of((W,), b_leaf), SideWeights.of((W_c,), b_leaf_c), x)
        h[:n_leaves] = leaves.step(slice(None))[:, 0]
        below = x.new_empty(len(plan.children), x.shape[1])
        inner = GRUSteps(SideWeights.of((U_1, U_2), b), SideWeights.of((U_c1, U_c2), b_c), below)
        at = 0
        for n in plan.sizes[1:]:
            children = slice(2 * at, 2 * (at + n))
            torch.index_select(h, 0, plan.children[children], out=below[children])
            first, second = inner.step(slice(at, at + n)).unbind(1)
            torch.lerp(first, second, 0.5, out=h[n_leaves + at : n_leaves + at + n])
            at += n
        ctx.leaves, ctx.inner, ctx.plan = leaves, inner, plan
        return h

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        """Gradients of x and of every weight."""
        leaves, inner, plan = ctx.leaves, ctx.inner, ctx.plan
        n_leaves, end = plan.sizes[0], len(plan.places)
        # The share of children, with a row of zeros at its end, which is that of roots.
        below = dh.new_empty(len(plan.children) + 1, dh.shape[1])
        below[-1] = 0
        for n in reversed(plan.sizes[1:]):
            own, rows = slice(end - n, end), slice(end - n - n_leaves, end - n_leaves)
            half = below.index_select(0, plan.places[own]).add_(dh[own]).mul_(0.5)
            found = below[2 * rows.start : 2 * rows.stop].view(n, 2, -1)
            inner.through_step(rows, half[:, None], found)
            end -= n
        d_leaves = below.index_select(0, plan.places[:n_leaves]).add_(dh[:n_leaves])[:, None]
        dx = torch.empty_like(d_leaves)
        leaves.through_step(slice(None), d_leaves, dx)
        return (dx[:, 0], *leaves.gradients(), *inner.gradients(), None)


class GRUSteps:
    """What steps of n rows on each of s sides compute and keep.

    h (n s, h): before, row by row. gates (n, s, 2 h): r and z. reset (n, s, h): r h. c (n, s, h):
    candidates.
    """

    def __init__(self, gates: SideWeights, candidate: SideWeights, h: Tensor) -> None:
        self.of_gates, self.of_candidate = gates, candidate
        self.h = h.view(-1, len(gates.rows), h.shape[1])
        n, s, width = self.h.shape
        self.gates = h.new_empty(n, s, 2 * width)
        self.reset, self.c = torch.empty_like(self.h), torch.empty_like(self.h)

    def step(self, rows: slice) -> Tensor:
        """States behind the steps (n, s, h): z h + (1 - z) c."""
        h, gates, reset, c = self.h[rows], self.gates[rows], self.reset[rows], self.c[rows]
        self.of_gates.forward(h, torch.sigmoid, gates)
        r, z = gates.chunk(2, 2)
        torch.mul(r, h, out=reset)
        self.of_candidate.forward(reset, torch.tanh, c)
        return torch.lerp(c, h, z)

    def through_step(self, rows: slice, d: Tensor, dh: Tensor) -> None:
        """Turn gates and candidates into their gradients before the non-linearities; write dh.

        d (n, 1 or s, h): gradient of the states behind the steps.
        """
        h, gates, c = self.h[rows], self.gates[rows], self.c[rows]
        r, z = gates.chunk(2, 2)
        d_gates = torch.empty_like(gates)
        dr, dz = d_gates.chunk(2, 2)
        torch.sub(h, c, out=dz).mul_(d)
        aten.tanh_backward.grad_input(torch.addcmul(d, d, z, value=-1), c, grad_input=c)
        d_reset = self.of_candidate.backward(c)
        torch.mul(d_reset, h, out=dr)
        torch.mul(d, z, out=dh).addcmul_(d_reset, r)
        aten.sigmoid_backward.grad_input(d_gates, gates, grad_input=gates)
        dh += self.of_gates.backward(gates)

    def gradients(self) -> tuple[Tensor, ...]:
        """Those of all weights and biases, gates before candidates, once all steps are through."""
        gates, b = self.of_gates.gradients(self.gates, self.h)
        candidate, b_c = self.of_candidate.gradients(self.c, self.reset)
        return (*gates, b, *candidate, b_c)
