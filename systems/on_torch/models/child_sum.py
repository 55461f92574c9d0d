"""Child-sum Tree-LSTM in PyTorch: its network, and its cell with a derivative written by hand."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model
from dynbatch.systems.on_torch.models.tree_steps import TreeLSTMBase, activate_gates, write_state
from dynbatch.systems.on_torch.models.trees import CellNet, Levels, Recursive, State
from dynbatch.systems.on_torch.products import (
    backpropagate_sigmoid,
    compute_weight_gradient,
    multiply,
)


class TreeLSTMChildSum(CellNet):
    """Parameters and equations of harness/models/tree_lstm_child_sum.py; a state is h and c."""

    n_states = 2

    def __init__(self, model: Model, kind: type[nn.Linear] = nn.Linear) -> None:
        super().__init__(model)
        self.embedding, self.classifier = self.make_table("embedding"), self.make_linear("W_out")
        self.leaf_gates = self.make_linear("W", "b", kind)
        self.gates = self.make_linear("U", kind=kind)
        self.gates.bias = self.leaf_gates.bias  # leaves and internal vertices share it
        self.forget = self.make_linear("U_f", "b_f", kind)

    def leaf(self, *vectors: Tensor) -> State:
        i, o, u = self.leaf_gates(vectors[0]).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def internal(self, left: State, right: State) -> State:
        (h_1, c_1), (h_2, c_2) = left, right
        i, o, u = self.gates(h_1 + h_2).chunk(3, dim=1)
        f_1, f_2 = torch.sigmoid(self.forget(torch.cat([h_1, h_2]))).chunk(2)
        c = torch.sigmoid(i) * torch.tanh(u) + f_1 * c_1 + f_2 * c_2
        return torch.sigmoid(o) * torch.tanh(c), c

    def list_weights(self) -> tuple[Tensor, ...]:
        """Return the weights that TreeChildSumCell takes."""
        layers = self.leaf_gates, self.forget
        (W, b), forget = ((layer.weight, layer.bias) for layer in layers)
        return W, b, self.gates.weight, *forget


class ChildSumGates(NamedTuple):
    """Gates of a level, or the gradients of their pre-activations.

    Attributes:
        i_o_u: (n, 3 h).
        both_f: (n, 2 h) forget gates of both children.
        both_c: (n, 2 h) c of both children, or its gradient.
    """

    i_o_u: Tensor
    both_f: Tensor
    both_c: Tensor


class TreeChildSumCell(TreeLSTMBase):
    """Child-sum Tree-LSTM cell; the forget gates of both children are one product."""

    def __init__(
        self, plan: Any, x: Tensor, W: Tensor, b: Tensor, U: Tensor, U_f: Tensor, b_f: Tensor
    ) -> None:
        super().__init__(plan, x, W, b)
        self.U, self.b, self.U_f, self.b_f = U, b, U_f, b_f
        self.kept: list[ChildSumGates] = []  # of every level
        self.children_h: list[Tensor] = []  # (2 n, h) of every level
        self.sum_h: list[Tensor] = []  # (n, h) of every level

    def compute_level(self, rows: slice) -> None:
        chosen, n = self.find_children(rows), rows.stop - rows.start
        children_h = self.states.index_select(0, chosen)
        sum_h = torch.add(*children_h.view(n, -1).chunk(2, 1))
        gates = ChildSumGates(
            multiply(sum_h, self.U, self.b),
            multiply(children_h, self.U_f, self.b_f).view(n, -1),
            self.c.index_select(0, chosen).view(n, -1),
        )
        self.internal(*gates, *self.select_memory(self.to_all_rows(rows)))
        if self.keep:
            self.kept.append(gates)
            self.children_h.append(children_h)
            self.sum_h.append(sum_h)

    def begin_backward(self, dstates: Tensor) -> None:
        n, width = self.n_internal, dstates.shape[1]
        self.d_i_o_u = dstates.new_empty(n, 3 * width)
        self.d_both_f = dstates.new_empty(n, 2 * width)
        super().begin_backward(dstates)
        self.to_do = list(self.kept)

    def backpropagate_level(self, rows: slice) -> None:
        gates = self.to_do.pop()
        own, n = self.to_all_rows(rows), rows.stop - rows.start
        d = ChildSumGates(
            self.d_i_o_u[rows], self.d_both_f[rows], self.select_share(self.below_c, rows)
        )
        self.through_internal(*self.gather_gradients(own), *gates, self.tanh_c[own], *d)
        by_sum = multiply(d.i_o_u, self.U.t())[:, None]
        by_forget = multiply(d.both_f.view(2 * n, -1), self.U_f.t()).view(n, 2, -1)
        torch.add(by_forget, by_sum, out=self.select_share(self.below, rows).view(n, 2, -1))

    def gradients(self, *, x_is_needed: bool) -> tuple[Tensor | None, ...]:
        d_leaves, d = self.backpropagate_leaves(), self.d_i_o_u
        none = [self.x.new_empty(0, self.U.shape[1])]
        d_forget = self.d_both_f.view(-1, self.U.shape[1])
        return (
            multiply(d_leaves, self.W.t()) if x_is_needed else None,
            compute_weight_gradient(d_leaves, self.x),
            d_leaves.sum(0) + d.sum(0),
            compute_weight_gradient(d, torch.cat(self.sum_h or none)),
            compute_weight_gradient(d_forget, torch.cat(self.children_h or none)),
            d_forget.sum(0),
        )

    @staticmethod
    def internal(
        i_o_u: Tensor, both_f: Tensor, both_c: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor
    ) -> None:
        """Compute `leaf` with the children's c and forget gates, both (n, 2 h)."""
        i, u = activate_gates(i_o_u)
        torch.mul(i, u, out=c)
        for f, below in zip(both_f.sigmoid_().chunk(2, 1), both_c.chunk(2, 1), strict=True):
            c.addcmul_(f, below)
        write_state(i_o_u, c, tanh_c, h)

    @staticmethod
    def through_internal(
        dh: Tensor,
        dc: Tensor,
        i_o_u: Tensor,
        both_f: Tensor,
        both_c: Tensor,
        tanh_c: Tensor,
        d: Tensor,
        d_both_f: Tensor,
        d_both_c: Tensor,
    ) -> None:
        """Compute `through_leaf`, and gradients of both_f's pre-activations and of both_c."""
        TreeLSTMBase.through_leaf(dh, dc, i_o_u, tanh_c, d)
        n, h = dc.shape
        by_child = dc[:, None].expand(n, 2, h)
        torch.mul(by_child, both_c.view(n, 2, h), out=d_both_f.view(n, 2, h))
        backpropagate_sigmoid(d_both_f, both_f)
        torch.mul(by_child, both_f.view(n, 2, h), out=d_both_c.view(n, 2, h))


EAGER = {
    "tree_lstm_child_sum": partial(Recursive, TreeLSTMChildSum),
}
LEVELS = {
    "tree_lstm_child_sum": partial(Levels, TreeLSTMChildSum, cell=TreeChildSumCell),
}
