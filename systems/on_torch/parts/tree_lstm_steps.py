"""All levels of a Tree-LSTM as one function, its derivative written by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

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


class Cell:
    """The elementwise parts of vertices and of their derivative."""

    @staticmethod
    def leaf(i_o_u: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor) -> None:
        """Gates from their sums, in place; writes c, tanh c and h (n, h)."""
        i, u = Cell.gates(i_o_u)
        torch.mul(i, u, out=c)
        Cell.h_of(i_o_u, c, tanh_c, h)

    @staticmethod
    def internal(
        i_o_u: Tensor,
        f_1: Tensor,
        f_2: Tensor,
        both_c: Tensor,
        c: Tensor,
        tanh_c: Tensor,
        h: Tensor,
    ) -> None:
        """The same with the children's c (n, 2 h) and a forget gate for each."""
        i, u = Cell.gates(i_o_u)
        torch.mul(i, u, out=c)
        for f, below in zip((f_1, f_2), both_c.chunk(2, 1), strict=True):
            c.addcmul_(f.sigmoid_(), below)
        Cell.h_of(i_o_u, c, tanh_c, h)

    @staticmethod
    def gates(i_o_u: Tensor) -> tuple[Tensor, Tensor]:
        """Non-linearities in place; i and u."""
        i, o, u = i_o_u.chunk(3, 1)
        i_o_u[:, : 2 * o.shape[1]].sigmoid_()
        return i, u.tanh_()

    @staticmethod
    def h_of(i_o_u: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor) -> None:
        """Write tanh c and h = o tanh c."""
        torch.mul(i_o_u.chunk(3, 1)[1], torch.tanh(c, out=tanh_c), out=h)

    @staticmethod
    def through_leaf(dh: Tensor, dc: Tensor, i_o_u: Tensor, tanh_c: Tensor, d: Tensor) -> None:
        """Write d, the gradient of the sums in i_o_u; turns dc into that of c. Spends dh."""
        i, o, u = i_o_u.chunk(3, 1)
        di, do, du = d.chunk(3, 1)
        torch.mul(dh, tanh_c, out=do)
        dc += aten.tanh_backward(dh.mul_(o), tanh_c)
        torch.mul(dc, u, out=di)
        torch.mul(dc, i, out=du)
        n_sigmoids = 2 * dh.shape[1]
        through_sigmoid(d[:, :n_sigmoids], i_o_u[:, :n_sigmoids])
        aten.tanh_backward.grad_input(du, u, grad_input=du)

    @staticmethod
    def through_internal(
        dh: Tensor, dc: Tensor, level: Level, tanh_c: Tensor, found: LevelGradients
    ) -> None:
        """The same, and the gradients of the sums in f_1 and f_2 and of the children's c."""
        Cell.through_leaf(dh, dc, level.i_o_u, tanh_c, found.i_o_u)
        sides = zip(
            (level.f_1, level.f_2),
            (found.f_1, found.f_2),
            level.both_c.chunk(2, 1),
            found.both_c.chunk(2, 1),
            strict=True,
        )
        for f, df, c, dc_below in sides:
            torch.mul(dc, c, out=df)
            through_sigmoid(df, f)
            torch.mul(dc, f, out=dc_below)


class LevelGradients(NamedTuple):
    """Those of a level's sums, and of the states of the two children."""

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
    def forward(ctx, x, W, b_leaf, U, b, F_1, F_2, b_f, plan, cell):  # type: ignore[no-untyped-def]
        """States, level after level; cell: a kind of Cell."""
        states = States(plan, x, len(F_1))
        leaves = product(x, W, b_leaf)
        cell.leaf(leaves, *states.own(slice(0, len(x))))
        levels, at = [], 0
        for n in plan.sizes[1:]:
            rows = slice(at, at + n)
            both_h, both_c = states.children(rows)
            h_1, h_2 = both_h.chunk(2, 1)
            sums = product(both_h, U, b), product(h_1, F_1, b_f), product(h_2, F_2, b_f)
            own = slice(len(x) + rows.start, len(x) + rows.stop)
            cell.internal(*sums, both_c, *states.own(own))
            if states.keep:
                levels.append(Level(rows, *sums, both_h, both_c))
            at += n
        ctx.save_for_backward(x, W, U, F_1, F_2)
        ctx.states, ctx.leaves, ctx.levels, ctx.cell = states, leaves, levels, cell
        # Not states.h itself: it would hold ctx, which holds it, and no mini-batch be freed before
        # Python looks for cycles, which it does not while passes are timed.
        return states.h.detach()

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        """Gradients of x and of every weight."""
        x, W, U, F_1, F_2 = ctx.saved_tensors
        gradients = Gradients(ctx.states, dh, len(x), ctx.cell)
        for level in reversed(ctx.levels):
            gradients.through_level(level, U, F_1, F_2)
        d_leaves = gradients.of_leaves(ctx.leaves)
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
            None,
        )


class States:
    """h and c of all rows (n, h), and tanh c; under inference_mode that of the last level alone."""

    def __init__(self, plan: Any, x: Tensor, h: int) -> None:
        n = len(plan.places)
        self.plan, self.keep = plan, not torch.is_inference_mode_enabled()
        self.h, self.c = x.new_empty(n, h), x.new_empty(n, h)
        self.tanh_c = x.new_empty(n if self.keep else max(plan.sizes), h)

    def children(self, rows: slice) -> tuple[Tensor, Tensor]:
        """States of both children (n, 2 h) of internal rows."""
        chosen = self.plan.children[2 * rows.start : 2 * rows.stop]
        n = rows.stop - rows.start
        return self.h.index_select(0, chosen).view(n, -1), self.c.index_select(0, chosen).view(
            n, -1
        )

    def own(self, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Memory of c, tanh c and h of rows."""
        kept = rows if self.keep else slice(0, rows.stop - rows.start)
        return self.c[rows], self.tanh_c[kept], self.h[rows]


class Gradients:
    """Of the sums in gates, and of the states by their parents' share.

    dh: of h of all rows, from outside. The share of children (2 n_internal + 1, h) ends with a row
    of zeros, which is that of roots.
    """

    def __init__(self, states: States, dh: Tensor, n_leaves: int, cell: type[Cell]) -> None:
        n, width = len(dh) - n_leaves, dh.shape[1]
        self.states, self.dh, self.n_leaves, self.cell = states, dh, n_leaves, cell
        self.i_o_u = dh.new_empty(n, 3 * width)
        self.f_1, self.f_2 = dh.new_empty(n, width), dh.new_empty(n, width)
        self.below_h, self.below_c = (dh.new_empty(2 * n + 1, width) for _ in range(2))
        self.below_h[-1] = self.below_c[-1] = 0

    def of_states(self, own: slice) -> tuple[Tensor, Tensor]:
        """Those of h and, by their parents' share, of c."""
        places = self.states.plan.places[own]
        dh, dc = self.below_h.index_select(0, places), self.below_c.index_select(0, places)
        return dh.add_(self.dh[own]), dc

    def of_leaves(self, i_o_u: Tensor) -> Tensor:
        """Those of the sums in the gates of leaves (n_leaves, 3 h)."""
        own, d = slice(0, self.n_leaves), torch.empty_like(i_o_u)
        self.cell.through_leaf(*self.of_states(own), i_o_u, self.states.tanh_c[own], d)
        return d

    def through_level(self, level: Level, U: Tensor, F_1: Tensor, F_2: Tensor) -> None:
        """Those of a level's sums, and the share of its children."""
        rows, n = level.rows, level.rows.stop - level.rows.start
        own = slice(self.n_leaves + rows.start, self.n_leaves + rows.stop)
        below = slice(2 * rows.start, 2 * rows.stop)
        found = LevelGradients(
            self.i_o_u[rows],
            self.f_1[rows],
            self.f_2[rows],
            self.below_h[below].view(n, -1),
            self.below_c[below].view(n, -1),
        )
        self.cell.through_internal(*self.of_states(own), level, self.states.tanh_c[own], found)
        by_gates = product(found.i_o_u, U.t()).chunk(2, 1)
        by_forget = product(found.f_1, F_1.t()), product(found.f_2, F_2.t())
        for parts in zip(by_gates, by_forget, found.both_h.chunk(2, 1), strict=True):
            torch.add(parts[0], parts[1], out=parts[2])
