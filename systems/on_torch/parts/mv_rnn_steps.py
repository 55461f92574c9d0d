"""All levels of an MV-RNN as one function, its derivative written by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from systems.on_torch.parts.products import product, weight_gradient
from systems.on_torch.parts.workspace import Workspace

CHUNK = 1 << 18  # numbers of matrices in a call: 1 MiB


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
            T = states.gather(rows)
            torch.tanh(product(states.crossed(rows, T), W, b), out=states.v_of(rows))
            if at + n < states.n_internal:
                for some in chunks_of(rows, states.h):
                    left, right = T[:, some.start - at : some.stop - at].flatten(1, 2)
                    own = states.T_of(some)
                    torch.add(product(left, A_1, b_T), product(right, A_2), out=own)
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


def chunks_of(rows: slice, h: int) -> list[slice]:
    """Rows whose matrices (h, h) stay in a core's cache from one call to the next."""
    n = max(1, CHUNK // (h * h))
    starts = range(rows.start, rows.stop, n)
    return [slice(start, min(start + n, rows.stop)) for start in starts]


class States:
    """What the levels compute and keep.

    v (n, h), own_T (n, h h): of all rows, but for matrices of roots. v_below (n_internal, 2, h): of
    both children. T (2, n_internal, h, h): the matrices of left and of right children, under
    inference_mode those of one level. products (n_internal, 2 h): v_2 T_1 and v_1 T_2.
    """

    def __init__(self, x: Tensor, matrices: Tensor, plan: Any, kept: Workspace) -> None:
        self.plan, self.kept, self.n_words = plan, kept, len(matrices)
        self.n_leaves, self.h = n_leaves, h = x.shape
        self.n_internal = n = plan.sides.shape[1]
        self.v = x.new_empty(len(plan.places), h)
        self.v[:n_leaves] = x
        self.v_below, self.products = x.new_empty(n, 2, h), x.new_empty(n, 2 * h)
        self.keep = not torch.is_inference_mode_enabled()
        n_kept = n if self.keep else max(plan.sizes)
        self.T = kept.take("matrices of children", x, 2, n_kept, h, h)
        n_own = n_leaves + len(plan.inner_places)
        self.own_T = kept.take("matrices", x, n_own, h * h)
        torch.index_select(matrices, 0, plan.words, out=self.own_T[:n_leaves])

    def v_of(self, rows: slice) -> Tensor:
        """Vectors of internal rows."""
        return self.v[self.n_leaves + rows.start : self.n_leaves + rows.stop]

    def T_of(self, rows: slice) -> Tensor:
        """Memory of internal rows' matrices, row below row (n h, h)."""
        own = self.own_T[self.n_leaves + rows.start : self.n_leaves + rows.stop]
        return own.view(-1, self.h)

    def gather(self, rows: slice) -> Tensor:
        """Matrices of the children of internal rows (2, n, h, h)."""
        found = self.T[:, rows] if self.keep else self.T[:, : rows.stop - rows.start]
        for own, children in zip(found, self.plan.sides[:, rows], strict=True):
            torch.index_select(self.own_T, 0, children, out=own.view(-1, self.h**2))
        return found

    def crossed(self, rows: slice, T: Tensor) -> Tensor:
        """Each child's vector by the other's matrix (n, 2 h)."""
        children = self.plan.children[2 * rows.start : 2 * rows.stop]
        v, found = self.v_below[rows], self.products[rows]
        torch.index_select(self.v, 0, children, out=v.view(-1, self.h))
        for side, own in enumerate(found.chunk(2, 1)):
            own.copy_(torch.bmm(v[:, 1 - side, None], T[side])[:, 0])
        return found


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
        d_products = product(self.sums[rows], W.t()).view(n, 2, -1)
        below = self.below[2 * rows.start : 2 * rows.stop].view(n, 2, -1)
        for side in (0, 1):
            # As a row by the transposed matrix: as a column it takes six times as long.
            T = states.T[side, rows].transpose(1, 2)
            below[:, 1 - side] = torch.bmm(d_products[:, side, None], T)[:, 0]
        for some in chunks_of(rows, states.h):
            found = d_products[some.start - rows.start : some.stop - rows.start]
            self._through_matrices(some, found, A)

    def _through_matrices(self, rows: slice, d: Tensor, A: tuple[Tensor, Tensor]) -> None:
        """Gradients of both children's matrices; d (n, 2, h): of their products."""
        own = self._own_matrices(rows)
        for side, weight in enumerate(A):
            v, out = self.states.v_below[rows, 1 - side, :, None], self.T[side, rows]
            if own is None:
                torch.mul(v, d[:, side, None], out=out)
            else:
                by_own = product(own, weight.t()).view_as(out)
                torch.addcmul(by_own, v, d[:, side, None], out=out)

    def _own_matrices(self, rows: slice) -> Tensor | None:
        """The gradient of internal rows' matrices, row below row (n h, h); None: of roots."""
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
        transposed = own.t().contiguous()  # takes as long as a product, so once for both
        below = states.T[:, : len(self.own_T)].flatten(1, 2)
        dA_1, dA_2 = (product(transposed, side.t()) for side in below)
        dW = weight_gradient(self.sums, states.products)
        return dW, self.sums.sum(0), dA_1, dA_2, own.sum(0)
