"""Lattice networks as one autograd function over all steps, with a derivative written by hand.

Cells of all arcs of a kind are computed in batches. One product computes the inputs' part of all
gates, and one product each the gradients of every weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, split

from dynbatch.systems.on_torch.products import (
    Repeated,
    aten,
    backpropagate_sigmoid,
    backpropagate_tanh,
    compute_weight_gradient,
    multiply,
    tanh,
)
from dynbatch.systems.on_torch.rows import StateRows

State = Sequence[Tensor]  # h first


class LatticeSteps(torch.autograd.Function):
    """h (n, h) of all rows of a plan, computed by a class of Cells from weights and inputs."""

    @staticmethod
    def forward(ctx, cells, plan, *given):  # type: ignore[no-untyped-def]
        """Run all steps; each computes its words first."""
        steps = Steps(cells, plan, *given, keep=not torch.is_inference_mode_enabled())
        for number, words in enumerate(plan.batches, start=1):
            if words is not None:
                steps.compute_words(words)
            steps.compute_characters(number)
        ctx.steps = steps
        # Without detach, the tensor and ctx would refer to each other, and the mini-batch would be
        # freed only by garbage collection, which is off while passes are timed.
        return steps.h.detach()

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        steps, ctx.steps = ctx.steps, None  # frees memory for the next mini-batch
        steps.begin_backward(dh)
        for number, words in reversed([*enumerate(steps.plan.batches, start=1)]):
            steps.backpropagate_characters(number)
            if words is not None:
                steps.backpropagate_words(words)
        return None, None, *steps.gradients()


class Cells(ABC):
    """Gates (n, m) of cells, initially only the inputs' part.

    Args:
        sizes: number of cells in every batch.
        x: (n, n_inputs) inputs.
        W: input weight, in the orientation of nn.Linear.
        b: bias.
        U: state weight, in the orientation of nn.Linear.
        keep: whether a derivative follows; `d` is then that of the gates' pre-activations.
    """

    def __init__(
        self, sizes: list[int], x: Tensor, W: Tensor, b: Tensor, U: Tensor, *, keep: bool
    ) -> None:
        self.x, self.W, self.U, self.keep = x, W, U, keep
        self.width = U.shape[1]
        self.all_gates = multiply(x, W, b)
        self.sizes, self.gates = sizes, torch.split(self.all_gates, sizes)
        self.by_state = Repeated(U)

    @abstractmethod
    def forward(self, batch: int, before: State, into: State) -> None:
        """Add to `into` the states after a batch's cells, given those before them, (n, h) each."""

    def begin_backward(self) -> None:
        """Allocate memory for the derivative."""
        self.all_d = torch.empty_like(self.all_gates)
        self.d = torch.split(self.all_d, self.sizes)

    @abstractmethod
    def backward(self, batch: int, dstate: State, before: State, into: State) -> None:
        """Add the gradients of the states before the cells to `into`, given those after them."""

    def gradients(self, h: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of x, W, b and U, given h before all cells."""
        d = self.all_d
        dU = compute_weight_gradient(d[:, : len(self.U)], h)
        return multiply(d, self.W.t()), compute_weight_gradient(d, self.x), d.sum(0), dU


class LSTMCells(Cells):
    """LSTM cells with gates f, i, o and g; a state is h and c."""

    def __init__(
        self, sizes: list[int], x: Tensor, W: Tensor, b: Tensor, U: Tensor, *, keep: bool
    ) -> None:
        super().__init__(sizes, x, W, b, U, keep=keep)
        if keep:
            self.tanh_c = torch.split(x.new_empty(len(x), self.width), sizes)

    def forward(self, batch: int, before: State, into: State) -> None:
        """Compute c' = f c + i g and h' = o tanh c'."""
        (h, c), (into_h, into_c) = before, into
        gates = self.gates[batch]
        gates += self.by_state(h)
        gates[:, : 3 * self.width].sigmoid_()
        f, i, o, g = gates.chunk(4, 1)
        new = torch.mul(f, c).addcmul_(i, tanh(g, g))
        tanh_c = tanh(new, self.tanh_c[batch] if self.keep else None)
        into_h.addcmul_(o, tanh_c)
        into_c += new

    def backward(self, batch: int, dstate: State, before: State, into: State) -> None:
        tanh_c, gates, d = self.tanh_c[batch], self.gates[batch], self.d[batch]
        dh, dc_outside = dstate
        f, i, o, g = gates.chunk(4, 1)
        df, di, do, dg = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc = aten.tanh_backward(dh * o, tanh_c).add_(dc_outside)
        torch.mul(dc, before[1], out=df)
        torch.mul(dc, g, out=di)
        torch.mul(dc, i, out=dg)
        n_sigmoids = 3 * self.width
        backpropagate_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        backpropagate_tanh(dg, g)
        into[0].add_(multiply(d, self.U.t()))
        into[1].addcmul_(dc, f)


class GRUCells(Cells):
    """GRU cells with gates r, z and n; a state is h."""

    def __init__(
        self,
        sizes: list[int],
        x: Tensor,
        W: Tensor,
        b: Tensor,
        U: Tensor,
        U_n: Tensor,
        *,
        keep: bool,
    ) -> None:
        super().__init__(sizes, x, W, b, U, keep=keep)
        self.U_n, self.by_reset = U_n, Repeated(U_n)

    def forward(self, batch: int, before: State, into: State) -> None:
        """Compute n = tanh(W x + U_n (r h) + b) and h' = z h + (1 - z) n."""
        (h,), (into_h,) = before, into
        r_z, n = torch.split_with_sizes(self.gates[batch], [2 * self.width, self.width], 1)
        r_z += self.by_state(h)
        r, z = r_z.sigmoid_().chunk(2, 1)
        n += self.by_reset(r * h)
        into_h += torch.lerp(tanh(n, n), h, z)

    def backward(self, batch: int, dstate: State, before: State, into: State) -> None:
        (dnew,), (h,), n_sigmoids = dstate, before, 2 * self.width
        gates, d = self.gates[batch], self.d[batch]
        r, z, n = gates.chunk(3, 1)
        dr, dz, dn = d.chunk(3, 1)
        dh = dnew * z
        torch.sub(h, n, out=dz).mul_(dnew)
        torch.sub(dnew, dh, out=dn)
        backpropagate_tanh(dn, n)
        dreset = multiply(dn, self.U_n.t())
        torch.mul(dreset, h, out=dr)
        backpropagate_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        dh.addcmul_(dreset, r).add_(multiply(d[:, :n_sigmoids], self.U.t()))
        into[0].add_(dh)

    def gradients(self, h: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of x, W, b, U and U_n."""
        r, _, _ = self.all_gates.chunk(3, 1)
        return *super().gradients(h), compute_weight_gradient(
            self.all_d[:, 2 * self.width :], r * h
        )


class Steps:
    """States of all rows, each the sum of the cells of all arcs into it.

    Attributes:
        char: cells of the characters.
        word: cells of the words.
        states: all parts of the states; the first step has the initial state.
        h: (n, h) of all rows.
        d: gradients of the states.
        sources: start rows of every batch of words.
        targets: end rows of every batch of words.

    Args:
        cells: class of the cells of both kinds of arcs.
        start: initial state, with its parts next to each other.
        x: vectors of the plan's characters.
        y: vectors of the plan's words.
        weights: weights of the characters' cells, then as many of the words' cells.
        keep: whether a derivative follows.
    """

    def __init__(
        self,
        cells: type[Cells],
        plan: Any,
        start: Tensor,
        x: Tensor,
        y: Tensor,
        *weights: Tensor,
        keep: bool,
    ) -> None:
        half = len(weights) // 2
        self.char = cells(plan.sizes[1:], x, *weights[:half], keep=keep)
        self.word = cells(plan.word_sizes, y, *weights[half:], keep=keep)
        self.plan, self.width = plan, self.char.width
        self.states = StateRows(start, plan, len(start) // self.width, self.width)
        for states, first in zip(self.states.own[0], split(start, self.width), strict=True):
            states[:] = first
        self.h = self.states.whole[0]
        self.sources = split(plan.sources, plan.word_sizes)
        self.targets = split(plan.targets, plan.word_sizes)

    def compute_words(self, batch: int) -> None:
        """Compute a batch of words, and add them to the states in which they end."""
        before = self.states.take(self.sources[batch])
        new = [torch.zeros_like(state) for state in before]
        self.word.forward(batch, before, new)
        self.states.add(self.targets[batch], new)

    def compute_characters(self, number: int) -> None:
        """Compute a step's characters, and so its states; the start states are step 0."""
        self.char.forward(number - 1, self.states.before[number], self.states.own[number])

    def begin_backward(self, dh: Tensor) -> None:
        """Take the gradient of h of all rows."""
        self.char.begin_backward()
        self.word.begin_backward()
        self.before_words = self.states.take(self.plan.sources)
        self.of_words = [torch.split(states, self.plan.word_sizes) for states in self.before_words]
        self.d = StateRows(dh, self.plan, len(self.states.whole), self.width)
        self.d.whole[0].copy_(dh)

    def backpropagate_characters(self, number: int) -> None:
        """Propagate through a step's characters; the gradients of its states are complete."""
        before = self.states.before[number]
        self.char.backward(number - 1, self.d.own[number], before, self.d.before[number])

    def backpropagate_words(self, batch: int) -> None:
        """Propagate through a batch of words."""
        d, before = self.d.take(self.targets[batch]), [states[batch] for states in self.of_words]
        new = [torch.zeros_like(state) for state in before]
        self.word.backward(batch, d, before, new)
        self.d.add(self.sources[batch], new)

    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients of start, x, y and the weights."""
        dx, *dchar = self.char.gradients(self.h.index_select(0, self.plan.before))
        dy, *dword = self.word.gradients(self.before_words[0])
        dstart = torch.cat([d.sum(0) for d in self.d.own[0]])
        return dstart, dx, dy, *dchar, *dword
