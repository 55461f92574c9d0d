"""All levels of a Tree-LSTM as one function, its derivative written by hand."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from systems.on_torch.models.tree_rows import TreeRows
from systems.on_torch.parts.lstm import through_sigmoid
from systems.on_torch.parts.products import product, weight_gradient

aten = torch.ops.aten


class Level(NamedTuple):
    """What the derivative reads of a level of internal vertices.

    rows: counted from the first internal one. i_o_u (n, 3 h), f_1, f_2 (n, h): gates. both_h,
    both_c (n, 2 h): states of the two children.
    """

    rows: slice
    i_o_u: Tensor
    f_1: Tensor
    f_2: Tensor
    both_h: Tensor
    both_c: Tensor


class TreeLSTMSteps(torch.autograd.Function):
    """h (n, h) of all rows of a plan, from x (n_leaves, n_inputs), weights as nn.Linear has them.

    Gradients of each weight are one product over all levels.
    """

    @staticmethod
    def forward(ctx, x, W, b_leaf, U, b, F_1, F_2, b_f, plan):  # type: ignore[no-untyped-def]
        """States, level after level."""
        states = States(plan, x, len(F_1), keep=any(ctx.needs_input_grad))
        leaves = product(x, W, b_leaf)
        states.finish(slice(0, len(x)), leaves)
        levels, at = [], 0
        for n in plan.sizes[1:]:
            rows = slice(at, at + n)
            both_h, both_c = states.children(rows)
            h_1, h_2 = both_h.chunk(2, 1)
            i_o_u = product(both_h, U, b)
            f_1 = product(h_1, F_1, b_f).sigmoid_()
            f_2 = product(h_2, F_2, b_f).sigmoid_()
            own = slice(len(x) + rows.start, len(x) + rows.stop)
            states.finish(own, i_o_u, (f_1, f_2), both_c)
            if states.keep:
                levels.append(Level(rows, i_o_u, f_1, f_2, both_h, both_c))
            at += n
        ctx.save_for_backward(x, W, U, F_1, F_2)
        ctx.states, ctx.leaves, ctx.levels = states, leaves, levels
        # Not states.h itself: it would hold ctx, which holds it, and no mini-batch be freed before
        # Python looks for cycles, which it does not while passes are timed.
        return states.h.detach()

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        """Gradients of x and of every weight."""
        x, W, U, F_1, F_2 = ctx.saved_tensors
        gradients = Gradients(ctx.states, dh, len(x))
        for level in reversed(ctx.levels):
            gradients.through_level(level, U, F_1, F_2)
        d_leaves = torch.empty_like(ctx.leaves)
        gradients.through_gates(slice(0, len(x)), ctx.leaves, d_leaves)
        both_h = torch.cat([level.both_h for level in ctx.levels] or [x.new_empty(0, U.shape[1])])
        h_1, h_2 = both_h.chunk(2, 1)
        d, d_1, d_2 = gradients.i_o_u, gradients.f_1, gradients.f_2
        return (
            product(d_leaves, W.t()) if ctx.needs_input_grad[0] else None,
            weight_gradient(d_leaves, x),
            d_leaves.sum(0),
            weight_gradient(d, both_h),
            d.sum(0),
            weight_gradient(d_1, h_1),
            weight_gradient(d_2, h_2),
            d_1.sum(0) + d_2.sum(0),
            None,
        )


class States:
    """h and c of all rows (n, h), and tanh c where it is to be kept for the derivative."""

    def __init__(self, plan: TreeRows, x: Tensor, h: int, *, keep: bool) -> None:
        n = len(plan.places)
        self.plan, self.keep = plan, keep
        self.h, self.c = x.new_empty(n, h), x.new_empty(n, h)
        self.tanh_c = x.new_empty(n if keep else 0, h)

    def children(self, rows: slice) -> tuple[Tensor, Tensor]:
        """States of both children (n, 2 h) of internal rows."""
        chosen = self.plan.children[2 * rows.start : 2 * rows.stop]
        n = rows.stop - rows.start
        return self.h.index_select(0, chosen).view(n, -1), self.c.index_select(0, chosen).view(
            n, -1
        )

    def finish(
        self,
        own: slice,
        i_o_u: Tensor,
        forget: tuple[Tensor, ...] = (),
        both_c: Tensor | None = None,
    ) -> None:
        """Non-linearities in place, then the states of a level."""
        h, c = self.h[own], self.c[own]
        i_o_u[:, : 2 * h.shape[1]].sigmoid_()
        i, o, u = i_o_u.chunk(3, 1)
        torch.mul(i, u.tanh_(), out=c)
        if both_c is not None:
            for f, below in zip(forget, both_c.chunk(2, 1), strict=True):
                c.addcmul_(f, below)
        tanh_c = torch.tanh(c, out=self.tanh_c[own]) if self.keep else torch.tanh(c)
        torch.mul(o, tanh_c, out=h)


class Gradients:
    """Of the gates before their non-linearities, and of the states by their parents' share.

    dh: of h of all rows, from outside. The share of children (2 n_internal + 1, h) ends with a row
    of zeros, which is that of roots.
    """

    def __init__(self, states: States, dh: Tensor, n_leaves: int) -> None:
        n, width = len(dh) - n_leaves, dh.shape[1]
        self.states, self.dh, self.n_leaves = states, dh, n_leaves
        self.i_o_u = dh.new_empty(n, 3 * width)
        self.f_1, self.f_2 = dh.new_empty(n, width), dh.new_empty(n, width)
        self.below_h, self.below_c = (dh.new_empty(2 * n + 1, width) for _ in range(2))
        self.below_h[-1] = self.below_c[-1] = 0

    def through_gates(self, own: slice, i_o_u: Tensor, d: Tensor) -> Tensor:
        """Write d, the gradient of i_o_u before the non-linearities; that of c."""
        places, tanh_c = self.states.plan.places[own], self.states.tanh_c[own]
        dh, dc = self.below_h.index_select(0, places), self.below_c.index_select(0, places)
        dh += self.dh[own]
        i, o, u = i_o_u.chunk(3, 1)
        di, do, du = d.chunk(3, 1)
        torch.mul(dh, tanh_c, out=do)
        dc += aten.tanh_backward(dh.mul_(o), tanh_c)
        torch.mul(dc, u, out=di)
        torch.mul(dc, i, out=du)
        n_sigmoids = 2 * dh.shape[1]
        through_sigmoid(d[:, :n_sigmoids], i_o_u[:, :n_sigmoids])
        aten.tanh_backward.grad_input(du, u, grad_input=du)
        return dc

    def through_level(self, level: Level, U: Tensor, F_1: Tensor, F_2: Tensor) -> None:
        """Gradients of a level's gates, and the share of its children."""
        rows, n = level.rows, level.rows.stop - level.rows.start
        own = slice(self.n_leaves + rows.start, self.n_leaves + rows.stop)
        d = self.i_o_u[rows]
        dc = self.through_gates(own, level.i_o_u, d)
        below = slice(2 * rows.start, 2 * rows.stop)
        sides = zip(
            ((level.f_1, self.f_1[rows], F_1), (level.f_2, self.f_2[rows], F_2)),
            level.both_c.chunk(2, 1),
            product(d, U.t()).chunk(2, 1),
            self.below_h[below].view(n, -1).chunk(2, 1),
            self.below_c[below].view(n, -1).chunk(2, 1),
            strict=True,
        )
        for (f, df, F), c, dh_by_gates, dh_below, dc_below in sides:
            torch.mul(dc, c, out=df)
            through_sigmoid(df, f)
            torch.mul(dc, f, out=dc_below)
            torch.add(dh_by_gates, product(df, F.t()), out=dh_below)
