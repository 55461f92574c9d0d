"""MV-RNN in PyTorch: one tree at a time, and manually batched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_torch.models.tree_steps import TreeCell, TreeSteps
from dynbatch.systems.on_torch.models.trees import CellNet, Recursive, State, TreeNet
from dynbatch.systems.on_torch.net import BatchedVertices, score_labels
from dynbatch.systems.on_torch.products import Workspace, aten, compute_weight_gradient, multiply
from dynbatch.systems.on_torch.rows import move_to_device
from dynbatch.systems.plans.trees import plan_matrix_rows

CHUNK = 1 << 18  # elements of matrices per call: 1 MiB


class MVRNN(CellNet):
    """Parameters and equations of harness/models/mv_rnn.py; a state is v (1, h) and T (h, h)."""

    n_states = 2

    def __init__(self, model: Model, kind: type[nn.Linear] = nn.Linear) -> None:
        super().__init__(model)
        self.embedding, self.classifier = self.make_table("embedding"), self.make_linear("W_out")
        self.matrices = self.make_table("matrices")
        self.vector = self.make_linear("W", "b", kind)
        self.matrix_1 = self.make_linear("A_1", "b_T", kind)  # with the bias of the sum
        self.matrix_2 = self.make_linear("A_2", kind=kind)

    def look_up_vectors(self, words: Tensor) -> State:
        """Look up a row of each table for each word."""
        h = self.vector.out_features
        return *super().look_up_vectors(words), self.matrices(words).view(-1, h, h)

    def leaf(self, *vectors: Tensor) -> State:
        """Return the state of a leaf, which is its word's entry in the tables."""
        return vectors

    def internal(self, left: State, right: State) -> State:
        (v_1, T_1), (v_2, T_2) = left, right
        v = torch.tanh(self.vector(torch.cat([v_2 @ T_1, v_1 @ T_2], dim=1)))
        return v, self.matrix_1(T_1) + self.matrix_2(T_2)


class RecursiveMatrices(Recursive):
    """One tree at a time; a word has a row (1, h) and a matrix (h, h)."""

    def split(self, vectors: State) -> Iterator[Sequence[Tensor]]:
        rows, matrices = vectors
        return iter((torch.split(rows, 1), matrices.unbind()))


class Levels(BatchedVertices):
    """All vertices of a level at once, with a derivative written by hand.

    Faster than autograd over levels, and than writing matrices where their parents read them.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.net, self.workspace = MVRNN(model), Workspace()
        self.held = self.net.held

    def plan(self, trees: Sequence[Tree], device: torch.device) -> Any:
        """Plan the rows of all vertices and of their matrices."""
        return move_to_device(plan_matrix_rows(trees), device)

    def forward(self, plan: Any) -> tuple[Tensor, Tensor]:
        net = self.net
        v = TreeSteps.apply(  # type: ignore[no-untyped-call]
            MVCell,
            plan,
            *TreeNet.look_up_vectors(net, plan.words),
            net.matrices.weight,
            net.vector.weight,
            net.vector.bias,
            net.matrix_1.weight,
            net.matrix_2.weight,
            net.matrix_1.bias,
            self.workspace,
        )
        return score_labels(net.classifier(v), plan.labels)


def split_rows(rows: slice, h: int) -> list[slice]:
    """Split rows so that the matrices (h, h) of a chunk stay in a core's cache between calls."""
    n = max(1, CHUNK // (h * h))
    starts = range(rows.start, rows.stop, n)
    return [slice(start, min(start + n, rows.stop)) for start in starts]


class MVCell(TreeCell):
    """Cell of MV-RNN; weights have the orientation of nn.Linear.

    The argument `matrices` is the table (n_words, h h); its gradient is sparse.

    Attributes:
        states: (n, h) vectors of all rows.
        own_T: (n, h h) matrices of all rows except roots.
        v_below: (n_internal, 2, h) vectors of both children.
        T: (2, n_internal, h, h) matrices of left and right children; under inference_mode those of
            one level.
        products: (n_internal, 2 h) v_2 T_1 and v_1 T_2.
        d_T: gradient of T, in the same layout.
    """

    def __init__(
        self,
        plan: Any,
        x: Tensor,
        matrices: Tensor,
        W: Tensor,
        b: Tensor,
        A_1: Tensor,
        A_2: Tensor,
        b_T: Tensor,
        workspace: Workspace,
    ) -> None:
        super().__init__(plan, x)
        self.W, self.b, self.A, self.b_T = W, b, (A_1, A_2), b_T
        self.workspace, self.n_words = workspace, len(matrices)
        self.h, n = x.shape[1], self.n_internal
        self.states = x.new_empty(len(plan.places), self.h)
        self.states[: self.n_leaves] = x
        self.v_below, self.products = x.new_empty(n, 2, self.h), x.new_empty(n, 2 * self.h)
        n_kept = n if self.keep else max(plan.sizes)
        self.T = workspace.take("matrices of children", x, 2, n_kept, self.h, self.h)
        n_own = self.n_leaves + len(plan.inner_places)
        self.own_T = workspace.take("matrices", x, n_own, self.h**2)
        torch.index_select(matrices, 0, plan.words, out=self.own_T[: self.n_leaves])

    def compute_level(self, rows: slice) -> None:
        T = self.gather(rows)
        sums = multiply(self.cross_multiply(rows, T), self.W, self.b)
        torch.tanh(sums, out=self.states[self.to_all_rows(rows)])
        if rows.stop < self.n_internal:  # the last level consists of roots
            for some in split_rows(rows, self.h):
                chosen = slice(some.start - rows.start, some.stop - rows.start)
                left, right = T[:, chosen].flatten(1, 2)
                own = self.own_T[self.to_all_rows(some)].view(-1, self.h)
                torch.add(multiply(left, self.A[0], self.b_T), multiply(right, self.A[1]), out=own)

    def gather(self, rows: slice) -> Tensor:
        """Return the matrices of the children of internal rows (2, n, h, h)."""
        matrices = self.T[:, rows] if self.keep else self.T[:, : rows.stop - rows.start]
        for own, children in zip(matrices, self.plan.sides[:, rows], strict=True):
            torch.index_select(self.own_T, 0, children, out=own.view(-1, self.h**2))
        return matrices

    def cross_multiply(self, rows: slice, T: Tensor) -> Tensor:
        """Return the product of each child's vector and the other child's matrix (n, 2 h)."""
        v, products = self.v_below[rows], self.products[rows]
        torch.index_select(self.states, 0, self.find_children(rows), out=v.view(-1, self.h))
        for side, own in enumerate(products.chunk(2, 1)):
            own.copy_(torch.bmm(v[:, 1 - side, None], T[side])[:, 0])
        return products

    def begin_backward(self, dstates: Tensor) -> None:
        n, h, n_inner = self.n_internal, self.h, len(self.plan.inner_places)
        self.d = dstates.new_empty(n, h)
        super().begin_backward(dstates)
        take = self.workspace.take
        self.d_T = take("gradients of children's matrices", dstates, 2, n, h, h)
        self.d_own_T = take("gradients of matrices", dstates, n_inner, h * h)

    def backpropagate_level(self, rows: slice) -> None:
        own, n = self.to_all_rows(rows), rows.stop - rows.start
        dv = self.gather_state_gradient(own)
        aten.tanh_backward.grad_input(dv, self.states[own], grad_input=self.d[rows])
        d_products = multiply(self.d[rows], self.W.t()).view(n, 2, -1)
        below = self.below[2 * rows.start : 2 * rows.stop].view(n, 2, -1)
        for side in (0, 1):
            # A row times the transposed matrix; the matrix times a column takes six times as long.
            T = self.T[side, rows].transpose(1, 2)
            below[:, 1 - side] = torch.bmm(d_products[:, side, None], T)[:, 0]
        for some in split_rows(rows, self.h):
            chosen = slice(some.start - rows.start, some.stop - rows.start)
            self.backpropagate_matrices(some, d_products[chosen])

    def backpropagate_matrices(self, rows: slice, d: Tensor) -> None:
        """Compute the gradients of children's matrices, given d (n, 2, h) of their products."""
        own = self.gather_matrix_gradients(rows)
        for side, weight in enumerate(self.A):
            v, out = self.v_below[rows, 1 - side, :, None], self.d_T[side, rows]
            if own is None:
                torch.mul(v, d[:, side, None], out=out)
            else:
                by_own = multiply(own, weight.t()).view_as(out)
                torch.addcmul(by_own, v, d[:, side, None], out=out)

    def gather_matrix_gradients(self, rows: slice) -> Tensor | None:
        """Return the gradient of internal rows' matrices, stacked (n h, h); None for roots."""
        places = self.plan.inner_places[rows]
        if len(places) == 0:
            return None
        own = self.d_own_T[rows]
        torch.index_select(self.d_T.view(-1, own.shape[1]), 0, places, out=own)
        return own.view(-1, self.h)

    def gradients(self, *, x_is_needed: bool) -> tuple[Tensor | None, ...]:
        values = self.d_T.view(-1, self.h**2).index_select(0, self.plan.leaf_places)
        size = (self.n_words, self.h**2)
        words = self.plan.leaf_words[None]
        table = torch.sparse_coo_tensor(words, values, size, check_invariants=False)
        dx, own = self.gather_state_gradient(slice(0, self.n_leaves)), self.d_own_T.view(-1, self.h)
        transposed = own.t().contiguous()  # as slow as a product, so done once for both
        below = self.T[:, : len(self.d_own_T)].flatten(1, 2)
        dA_1, dA_2 = (multiply(transposed, side.t()) for side in below)
        dW = compute_weight_gradient(self.d, self.products)
        return dx, table, dW, self.d.sum(0), dA_1, dA_2, own.sum(0), None


EAGER = {"mv_rnn": partial(RecursiveMatrices, MVRNN)}
LEVELS = {"mv_rnn": Levels}
