"""Tree networks as one autograd function over all levels, with a derivative written by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynbatch.systems.on_torch.products import (
    SideWeights,
    aten,
    backpropagate_sigmoid,
    compute_weight_gradient,
    multiply,
)


class TreeSteps(torch.autograd.Function):
    """States (n, h) of all rows of a plan, computed by a class of TreeCell.

    The gradient of each weight is one product over all levels.
    """

    @staticmethod
    def forward(ctx, kind, plan, x, *given):  # type: ignore[no-untyped-def]
        """Run level after level.

        Args:
            kind: class of the cell.
            x: (n_leaves, n_inputs) inputs of leaves.
            given: further arguments of the cell.
        """
        cell = kind(plan, x, *given)
        at = 0
        for n in plan.sizes[1:]:
            cell.compute_level(slice(at, at + n))
            at += n
        ctx.cell = cell
        # Without detach, the tensor and ctx would refer to each other, and the mini-batch would be
        # freed only by garbage collection, which is off while passes are timed.
        return cell.states.detach()

    @staticmethod
    def backward(ctx, dstates):  # type: ignore[no-untyped-def]
        cell = ctx.cell
        cell.begin_backward(dstates)
        end = cell.n_internal
        for n in reversed(cell.plan.sizes[1:]):
            cell.backpropagate_level(slice(end - n, end))
            end -= n
        x_is_needed = ctx.needs_input_grad[2]
        return None, None, *cell.gradients(x_is_needed=x_is_needed)


class TreeCell(ABC):
    """States of all rows of a plan (dynbatch.systems.plans.trees), and their gradients.

    Arguments `rows` of methods are slices of the internal rows.

    Attributes:
        states: (n, h) states that the classifier reads, leaves first; written by `__init__` and
            `compute_level`.
        keep: whether a derivative follows.
    """

    states: Tensor

    def __init__(self, plan: Any, x: Tensor) -> None:
        self.plan, self.x, self.keep = plan, x, not torch.is_inference_mode_enabled()
        self.n_leaves = plan.sizes[0]
        self.n_internal = len(plan.children) // 2

    def to_all_rows(self, rows: slice) -> slice:
        return slice(self.n_leaves + rows.start, self.n_leaves + rows.stop)

    def find_children(self, rows: slice) -> Tensor:
        """Return the rows of both children of every internal row."""
        children: Tensor = self.plan.children[2 * rows.start : 2 * rows.stop]
        return children

    @abstractmethod
    def compute_level(self, rows: slice) -> None:
        """Compute a level."""

    def begin_backward(self, dstates: Tensor) -> None:
        """Take the states' gradient, and allocate memory for the children's contributions.

        The last row of this memory is zeros, the contribution to roots.
        """
        self.dstates = dstates
        self.below = dstates.new_empty(2 * self.n_internal + 1, dstates.shape[1])
        self.below[-1] = 0

    def gather_state_gradient(self, own: slice) -> Tensor:
        """Return the gradient of the states of a slice of all rows, whose parents are done."""
        return self.below.index_select(0, self.plan.places[own]).add_(self.dstates[own])

    def select_share(self, share: Tensor, rows: slice) -> Tensor:
        """Return the contributions of a level to both children (n, 2 h)."""
        return share[2 * rows.start : 2 * rows.stop].view(rows.stop - rows.start, -1)

    @abstractmethod
    def backpropagate_level(self, rows: slice) -> None:
        """Compute the gradients of a level's pre-activations, and its contributions to children."""

    @abstractmethod
    def gradients(self, *, x_is_needed: bool) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and of all further arguments, after all levels."""


class TreeLSTMBase(TreeCell):
    """Leaves of Tree-LSTM cells, and c of all rows; weights have the orientation of nn.Linear.

    tanh_c is (n, h); under inference_mode it has only the last level. Static methods compute the
    elementwise parts.

    Args:
        x: (n_leaves, n_inputs) inputs of leaves.
        W: (3 h, n_inputs) weights of leaves.
        b_leaf: (3 h,) their biases.
    """

    def __init__(self, plan: Any, x: Tensor, W: Tensor, b_leaf: Tensor) -> None:
        super().__init__(plan, x)
        self.W = W
        n, h = len(plan.places), len(W) // 3
        self.states, self.c = x.new_empty(n, h), x.new_empty(n, h)
        self.tanh_c = x.new_empty(n if self.keep else max(plan.sizes), h)
        self.leaves = multiply(x, W, b_leaf)
        self.leaf(self.leaves, *self.select_memory(slice(0, len(x))))

    def select_memory(self, own: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return the memory of c, tanh c and h of a slice of all rows."""
        kept = own if self.keep else slice(0, own.stop - own.start)
        return self.c[own], self.tanh_c[kept], self.states[own]

    def begin_backward(self, dstates: Tensor) -> None:
        super().begin_backward(dstates)
        self.below_c = torch.empty_like(self.below)
        self.below_c[-1] = 0

    def gather_gradients(self, own: slice) -> tuple[Tensor, Tensor]:
        """Return the gradients of h, and of c (the contributions of parents)."""
        return self.gather_state_gradient(own), self.below_c.index_select(0, self.plan.places[own])

    def backpropagate_leaves(self) -> Tensor:
        """Return the gradient of the leaves' pre-activations (n_leaves, 3 h)."""
        own, d = slice(0, self.n_leaves), torch.empty_like(self.leaves)
        self.through_leaf(*self.gather_gradients(own), self.leaves, self.tanh_c[own], d)
        return d

    @staticmethod
    def leaf(i_o_u: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor) -> None:
        """Compute gates in place from pre-activations; write c, tanh c and h (n, h)."""
        i, u = activate_gates(i_o_u)
        torch.mul(i, u, out=c)
        write_state(i_o_u, c, tanh_c, h)

    @staticmethod
    def through_leaf(dh: Tensor, dc: Tensor, i_o_u: Tensor, tanh_c: Tensor, d: Tensor) -> None:
        """Write the gradient of i_o_u's pre-activations to d, and that of c to dc; overwrite dh."""
        i, o, u = i_o_u.chunk(3, 1)
        di, do, du = d.chunk(3, 1)
        torch.mul(dh, tanh_c, out=do)
        dc += aten.tanh_backward(dh.mul_(o), tanh_c)
        torch.mul(dc, u, out=di)
        torch.mul(dc, i, out=du)
        n_sigmoids = 2 * dh.shape[1]
        backpropagate_sigmoid(d[:, :n_sigmoids], i_o_u[:, :n_sigmoids])
        aten.tanh_backward.grad_input(du, u, grad_input=du)


def activate_gates(i_o_u: Tensor) -> tuple[Tensor, Tensor]:
    """Apply the non-linearities in place; return i and u."""
    i, o, u = i_o_u.chunk(3, 1)
    i_o_u[:, : 2 * o.shape[1]].sigmoid_()
    return i, u.tanh_()


def write_state(i_o_u: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor) -> None:
    """Write tanh c and h = o tanh c."""
    torch.mul(i_o_u.chunk(3, 1)[1], torch.tanh(c, out=tanh_c), out=h)


class TreeGates(NamedTuple):
    """Gates of a level of Tree-LSTMs, or the gradients of their pre-activations.

    Attributes:
        i_o_u: (n, 3 h).
        f_1: (n, h).
        f_2: (n, h).
        both_c: (n, 2 h) c of both children, or its gradient.
    """

    i_o_u: Tensor
    f_1: Tensor
    f_2: Tensor
    both_c: Tensor


class TreeLSTMCell(TreeLSTMBase):
    """N-ary Tree-LSTM cell: both children's h next to each other, and a forget matrix for each."""

    def __init__(
        self,
        plan: Any,
        x: Tensor,
        W: Tensor,
        b_leaf: Tensor,
        U: Tensor,
        b: Tensor,
        F_1: Tensor,
        b_f: Tensor,
        F_2: Tensor,
    ) -> None:
        super().__init__(plan, x, W, b_leaf)
        self.U, self.b, self.F_1, self.b_f, self.F_2 = U, b, F_1, b_f, F_2
        self.kept: list[tuple[TreeGates, Tensor]] = []  # gates and both children's h of every level

    def compute_level(self, rows: slice) -> None:
        chosen, n = self.find_children(rows), rows.stop - rows.start
        both_h = self.states.index_select(0, chosen).view(n, -1)
        both_c = self.c.index_select(0, chosen).view(n, -1)
        h_1, h_2 = both_h.chunk(2, 1)
        i_o_u, f_1 = multiply(both_h, self.U, self.b), multiply(h_1, self.F_1, self.b_f)
        gates = TreeGates(i_o_u, f_1, multiply(h_2, self.F_2, self.b_f), both_c)
        self.internal(*gates, *self.select_memory(self.to_all_rows(rows)))
        if self.keep:
            self.kept.append((gates, both_h))

    def begin_backward(self, dstates: Tensor) -> None:
        n, width = self.n_internal, dstates.shape[1]
        self.d_i_o_u = dstates.new_empty(n, 3 * width)
        self.d_f_1, self.d_f_2 = dstates.new_empty(n, width), dstates.new_empty(n, width)
        super().begin_backward(dstates)
        self.to_do = list(self.kept)

    def backpropagate_level(self, rows: slice) -> None:
        gates, _ = self.to_do.pop()
        own = self.to_all_rows(rows)
        d = TreeGates(
            self.d_i_o_u[rows],
            self.d_f_1[rows],
            self.d_f_2[rows],
            self.select_share(self.below_c, rows),
        )
        self.through_internal(*self.gather_gradients(own), gates, self.tanh_c[own], d)
        by_gates = multiply(d.i_o_u, self.U.t()).chunk(2, 1)
        by_forget = multiply(d.f_1, self.F_1.t()), multiply(d.f_2, self.F_2.t())
        sides = self.select_share(self.below, rows).chunk(2, 1)
        for first, second, out in zip(by_gates, by_forget, sides, strict=True):
            torch.add(first, second, out=out)

    def gradients(self, *, x_is_needed: bool) -> tuple[Tensor | None, ...]:
        d_leaves = self.backpropagate_leaves()
        none = [self.x.new_empty(0, self.U.shape[1])]
        both_h = torch.cat([both_h for _, both_h in self.kept] or none)
        h_1, h_2 = both_h.chunk(2, 1)
        d, d_1, d_2 = self.d_i_o_u, self.d_f_1, self.d_f_2
        return (
            multiply(d_leaves, self.W.t()) if x_is_needed else None,
            compute_weight_gradient(d_leaves, self.x),
            d_leaves.sum(0),
            compute_weight_gradient(d, both_h),
            d.sum(0),
            compute_weight_gradient(d_1, h_1),
            d_1.sum(0) + d_2.sum(0),
            compute_weight_gradient(d_2, h_2),
        )

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
        """Compute `leaf` with the children's c (n, 2 h) and one forget gate each."""
        i, u = activate_gates(i_o_u)
        torch.mul(i, u, out=c)
        for f, below in zip((f_1, f_2), both_c.chunk(2, 1), strict=True):
            c.addcmul_(f.sigmoid_(), below)
        write_state(i_o_u, c, tanh_c, h)

    @staticmethod
    def through_internal(
        dh: Tensor, dc: Tensor, gates: TreeGates, tanh_c: Tensor, d: TreeGates
    ) -> None:
        """Compute `through_leaf`, and gradients of pre-activations of f_1 and f_2 and of both_c."""
        TreeLSTMBase.through_leaf(dh, dc, gates.i_o_u, tanh_c, d.i_o_u)
        below = zip(gates.both_c.chunk(2, 1), d.both_c.chunk(2, 1), strict=True)
        forget = (gates.f_1, d.f_1), (gates.f_2, d.f_2)
        for (f, df), (c, dc_below) in zip(forget, below, strict=True):
            torch.mul(dc, c, out=df)
            backpropagate_sigmoid(df, f)
            torch.mul(dc, f, out=dc_below)


class TreeGRUCell(TreeCell):
    """Tree-GRU cell; both children of a vertex take their steps in the same calls."""

    def __init__(self, plan: Any, x: Tensor, *weights: Tensor) -> None:
        super().__init__(plan, x)
        W, b_leaf, W_c, b_leaf_c, U_1, U_2, b, U_c1, U_c2, b_c = weights
        self.states = x.new_empty(len(plan.places), x.shape[1])
        leaf = SideWeights.from_rows((W,), b_leaf), SideWeights.from_rows((W_c,), b_leaf_c)
        self.leaves = GRUSteps(*leaf, x)
        self.states[: self.n_leaves] = self.leaves.step(slice(None))[:, 0]
        self.below_h = x.new_empty(len(plan.children), x.shape[1])
        inner = SideWeights.from_rows((U_1, U_2), b), SideWeights.from_rows((U_c1, U_c2), b_c)
        self.inner = GRUSteps(*inner, self.below_h)

    def compute_level(self, rows: slice) -> None:
        below = self.below_h[2 * rows.start : 2 * rows.stop]
        torch.index_select(self.states, 0, self.find_children(rows), out=below)
        first, second = self.inner.step(rows).unbind(1)
        torch.lerp(first, second, 0.5, out=self.states[self.to_all_rows(rows)])

    def backpropagate_level(self, rows: slice) -> None:
        half = self.gather_state_gradient(self.to_all_rows(rows)).mul_(0.5)
        share = self.below[2 * rows.start : 2 * rows.stop].view(len(half), 2, -1)
        self.inner.backpropagate_step(rows, half[:, None], share)

    def gradients(self, *, x_is_needed: bool) -> tuple[Tensor | None, ...]:
        d_leaves = self.gather_state_gradient(slice(0, self.n_leaves))[:, None]
        dx = torch.empty_like(d_leaves)
        self.leaves.backpropagate_step(slice(None), d_leaves, dx)
        W, b_leaf, W_c, b_leaf_c = self.leaves.gradients()
        return dx[:, 0], W, b_leaf, W_c, b_leaf_c, *self.inner.gradients()


class GRUSteps:
    """Intermediate values of GRU steps of n rows on each of s sides.

    Attributes:
        h: (n, s, h) states before the steps.
        gates: (n, s, 2 h) r and z.
        reset: (n, s, h) r h.
        c: (n, s, h) candidates.
    """

    def __init__(self, gates: SideWeights, candidate: SideWeights, h: Tensor) -> None:
        self.of_gates, self.of_candidate = gates, candidate
        self.h = h.view(-1, len(gates.rows), h.shape[1])
        n, s, width = self.h.shape
        self.gates = h.new_empty(n, s, 2 * width)
        self.reset, self.c = torch.empty_like(self.h), torch.empty_like(self.h)

    def step(self, rows: slice) -> Tensor:
        """Return the states after the steps (n, s, h): z h + (1 - z) c."""
        h, gates, reset, c = self.h[rows], self.gates[rows], self.reset[rows], self.c[rows]
        self.of_gates.forward(h, torch.sigmoid, gates)
        r, z = gates.chunk(2, 2)
        torch.mul(r, h, out=reset)
        self.of_candidate.forward(reset, torch.tanh, c)
        return torch.lerp(c, h, z)

    def backpropagate_step(self, rows: slice, d: Tensor, dh: Tensor) -> None:
        """Overwrite gates and candidates with the gradients of their pre-activations; write dh.

        Args:
            rows: slice of the rows.
            d: (n, 1 or s, h) gradient of the states after the steps.
            dh: gradient of the states before the steps.
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
        """Return the gradients of all weights and biases, gates first, after all steps."""
        gates, b = self.of_gates.gradients(self.gates, self.h)
        candidate, b_c = self.of_candidate.gradients(self.c, self.reset)
        return (*gates, b, *candidate, b_c)
