"""All levels of an MV-RNN as one function, its derivative written by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from systems.on_torch.parts.matrix_rows import MatrixRows
from systems.on_torch.parts.products import product, weight_gradient
from systems.on_torch.parts.workspace import Workspace


class MVRNNSteps(torch.autograd.Function):
    """v (n, h) of all rows of a plan, from those of its leaves, x (n_leaves, h).

    matrices (n_words, h h): the table. W, b; A_1, A_2, b_T: as nn.Linear has them. Gradients of
    each weight are one product over all levels, that of the table is sparse.
    """

    @staticmethod
    def forward(ctx, x, matrices, W, b, A_1, A_2, b_T, plan, workspace):  # type: ignore[no-untyped-def]
        """Vectors, level after level."""
        states = States(x, matrices, plan, workspace)
        at = 0
        for n in plan.sizes[1:]:
            rows = slice(at, at + n)
            torch.tanh(product(states.crossed(rows), W, b), out=states.v_of(rows))
            if at + n < states.n_internal:
                states.keep(rows, product(states.below(0, rows), A_1, b_T), A_2)
            at += n
        ctx.save_for_backward(W, A_1, A_2)
        ctx.states = states
        # Not states.v itself: see TreeLSTMSteps.
        return states.v.detach()

    @staticmethod
    def backward(ctx, dv):  # type: ignore[no-untyped-def]
        """Gradients of x, of the table and of every weight."""
        W, A_1, A_2 = ctx.saved_tensors
        gradients = Gradients(ctx.states, dv)
        end = ctx.states.n_internal
        for n in reversed(ctx.states.plan.sizes[1:]):
            gradients.through_level(slice(end - n, end), W, (A_1, A_2))
            end -= n
        return (*gradients.of_leaves(), *gradients.of_weights(), None, None)


class States:
    """What the levels compute and keep.

    v (n, h). v_below (n_internal, 2, h): of both children. T (2, n_internal, h, h): the matrices of
    left and of right children. products (n_internal, 2 h): v_2 T_1 and v_1 T_2.
    """

    def __init__(self, x: Tensor, matrices: Tensor, plan: MatrixRows, kept: Workspace) -> None:
        self.plan, self.kept, self.n_words = plan, kept, len(matrices)
        self.n_leaves, self.h = x.shape
        self.n_internal = n = len(plan.children) // 2
        self.v = x.new_empty(len(plan.places), self.h)
        self.v[: self.n_leaves] = x
        self.v_below, self.products = x.new_empty(n, 2, self.h), x.new_empty(n, 2 * self.h)
        self.T = kept.take("matrices", x, 2, n, self.h, self.h)
        # One pass over the memory: what is no leaf's is written once more, by its vertex.
        torch.index_select(matrices, 0, plan.place_words, out=self.T.view(2 * n, self.h**2))

    def v_of(self, rows: slice) -> Tensor:
        """Vectors of internal rows."""
        return self.v[self.n_leaves + rows.start : self.n_leaves + rows.stop]

    def below(self, side: int, rows: slice) -> Tensor:
        """Matrices of the children on a side, row below row (n h, h)."""
        return self.T[side, rows].view(-1, self.h)

    def crossed(self, rows: slice) -> Tensor:
        """Each child's vector by the other's matrix (n, 2 h)."""
        children = self.plan.children[2 * rows.start : 2 * rows.stop]
        v, found = self.v_below[rows], self.products[rows]
        torch.index_select(self.v, 0, children, out=v.view(-1, self.h))
        for side, own in enumerate(found.chunk(2, 1)):
            own.copy_(torch.bmm(v[:, 1 - side, None], self.T[side, rows])[:, 0])
        return found

    def keep(self, rows: slice, by_left: Tensor, A_2: Tensor) -> None:
        """Add the right children's share, and put the matrices where their parents read them."""
        by_left += product(self.below(1, rows), A_2)
        places, found = self.plan.inner_places[rows], by_left.view(-1, self.h**2)
        self.T.view(-1, self.h**2).index_copy_(0, places, found)


class Gradients:
    """Of the sums in tanh, and of the states by their parents' share.

    dv: of v of all rows, from outside. The share of children (2 n_internal + 1, h) ends with a row
    of zeros, which is that of roots; that of matrices lies as States.T does.
    """

    def __init__(self, states: States, dv: Tensor) -> None:
        self.states, self.dv = states, dv
        n, h, kept = states.n_internal, states.h, states.kept
        self.sums = dv.new_empty(n, h)
        self.below = dv.new_empty(2 * n + 1, h)
        self.below[-1] = 0
        self.T = kept.take("gradients of children's matrices", dv, 2, n, h, h)
        n_inner = len(states.plan.inner_places)
        self.own_T = kept.take("gradients of matrices", dv, n_inner, h * h)

    def of(self, own: slice) -> Tensor:
        """The gradient of v of some of all rows."""
        return self.below.index_select(0, self.states.plan.places[own]).add_(self.dv[own])

    def through_level(self, rows: slice, W: Tensor, A: tuple[Tensor, Tensor]) -> None:
        """Gradients of a level's sums, and the share of its children."""
        states, n = self.states, rows.stop - rows.start
        d = self.of(slice(states.n_leaves + rows.start, states.n_leaves + rows.stop))
        torch.ops.aten.tanh_backward.grad_input(d, states.v_of(rows), grad_input=self.sums[rows])
        d_crossed = product(self.sums[rows], W.t()).view(n, 2, -1)
        below = self.below[2 * rows.start : 2 * rows.stop].view(n, 2, -1)
        own = self._own_matrices(rows)
        for side in (0, 1):
            d_own = d_crossed[:, side]
            below[:, 1 - side] = torch.bmm(states.T[side, rows], d_own[:, :, None])[:, :, 0]
            v = states.v_below[rows, 1 - side, :, None]
            if own is None:
                torch.mul(v, d_own[:, None], out=self.T[side, rows])
            else:
                by_own = product(own, A[side].t()).view(n, states.h, states.h)
                torch.addcmul(by_own, v, d_own[:, None], out=self.T[side, rows])

    def _own_matrices(self, rows: slice) -> Tensor | None:
        """The gradient of a level's matrices, row below row (n h, h); None: of roots."""
        places = self.states.plan.inner_places[rows]
        if len(places) == 0:
            return None
        own = self.own_T[rows]
        torch.index_select(self.T.view(-1, own.shape[1]), 0, places, out=own)
        return own.view(-1, self.states.h)

    def of_leaves(self) -> tuple[Tensor, Tensor]:
        """Of x and of the table, once all levels are through."""
        plan, h, n_words = self.states.plan, self.states.h, self.states.n_words
        values = self.T.view(-1, h * h).index_select(0, plan.leaf_places)
        table = torch.sparse_coo_tensor(
            plan.leaf_words[None], values, (n_words, h * h), check_invariants=False
        )
        return self.of(slice(0, self.states.n_leaves)), table

    def of_weights(self) -> tuple[Any, ...]:
        """Of W and b, of A_1, A_2 and b_T, over all levels at once."""
        states, own = self.states, self.own_T.view(-1, self.states.h)
        inner = slice(0, len(self.own_T))
        dA_1, dA_2 = (weight_gradient(own, states.below(side, inner)) for side in (0, 1))
        dW = weight_gradient(self.sums, states.products)
        return dW, self.sums.sum(0), dA_1, dA_2, own.sum(0)
