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
from dynbatch.systems.plans.lattices import LatticeStep

State = Sequence[Tensor]  # h first


class LatticeSteps(torch.autograd.Function):
    """h (n, h) of all rows of a plan, computed by a class of Steps from weights and inputs."""

    @staticmethod
    def forward(ctx, kind, plan, *given):  # type: ignore[no-untyped-def]
        """Run all steps; each computes its words first."""
        steps = kind(plan, *given, keep=not torch.is_inference_mode_enabled())
        for step in plan.steps:
            if step.words is not None:
                steps.compute_words(step.words)
            steps.compute_characters(step)
        ctx.steps = steps
        # Without detach, the tensor and ctx would refer to each other, and the mini-batch would be
        # freed only by garbage collection, which is off while passes are timed.
        return steps.h.detach()

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        steps, ctx.steps = ctx.steps, None  # frees memory for the next mini-batch
        steps.begin_backward(dh)
        for step in reversed(steps.plan.steps):
            steps.backpropagate_characters(step)
            if step.words is not None:
                steps.backpropagate_words(step.words)
        return None, None, *steps.gradients()


class Steps(ABC):
    """States of all rows, and cells of all arcs.

    Attributes:
        states: all parts of the states; the first step has the initial state (argument `start`,
            with its parts next to each other).
        h: (n, h) of all rows.
        d: gradients of the states.
        sources: start rows of every batch of words.
        targets: end rows of every batch of words.
    """

    def __init__(self, plan: Any, start: Tensor, width: int) -> None:
        self.plan, self.width = plan, width
        self.states = StateRows(start, plan, len(start) // width, width)
        for states, first in zip(self.states.own[0], split(start, width), strict=True):
            states[:] = first
        self.h = self.states.whole[0]
        self.sources = split(plan.sources, plan.word_sizes)
        self.targets = split(plan.targets, plan.word_sizes)

    @abstractmethod
    def compute_words(self, batch: int) -> None:
        """Compute a batch of words, and add them to the states in which they end."""

    @abstractmethod
    def compute_characters(self, step: LatticeStep) -> None:
        """Compute a step's characters, and so its states."""

    def begin_backward(self, dh: Tensor) -> None:
        """Take the gradient of h of all rows."""
        self.d = StateRows(dh, self.plan, len(self.states.whole), self.width)
        self.d.whole[0].copy_(dh)

    @abstractmethod
    def backpropagate_characters(self, step: LatticeStep) -> None:
        """Propagate through a step's characters; the gradients of its states are complete."""

    @abstractmethod
    def backpropagate_words(self, batch: int) -> None:
        """Propagate through a batch of words."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients of all inputs."""


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


class SummedSteps(Steps):
    """Steps in which a state is the sum of the cells of all arcs into it.

    Args:
        cells: cells of both kinds of arcs.
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
        super().__init__(plan, start, self.char.width)

    def compute_words(self, batch: int) -> None:
        before = self.states.take(self.sources[batch])
        new = [torch.zeros_like(state) for state in before]
        self.word.forward(batch, before, new)
        self.states.add(self.targets[batch], new)

    def compute_characters(self, step: LatticeStep) -> None:
        number, before = step.number, self.states.before[step.number]
        self.char.forward(number - 1, before, self.states.own[number])

    def begin_backward(self, dh: Tensor) -> None:
        self.char.begin_backward()
        self.word.begin_backward()
        self.before_words = self.states.take(self.plan.sources)
        self.of_words = [torch.split(states, self.plan.word_sizes) for states in self.before_words]
        super().begin_backward(dh)

    def backpropagate_characters(self, step: LatticeStep) -> None:
        number, before = step.number, self.states.before[step.number]
        self.char.backward(number - 1, self.d.own[number], before, self.d.before[number])

    def backpropagate_words(self, batch: int) -> None:
        d, before = self.d.take(self.targets[batch]), [states[batch] for states in self.of_words]
        new = [torch.zeros_like(state) for state in before]
        self.word.backward(batch, d, before, new)
        self.d.add(self.sources[batch], new)

    def gradients(self) -> tuple[Tensor, ...]:
        dx, *dchar = self.char.gradients(self.h.index_select(0, self.plan.before))
        dy, *dword = self.word.gradients(self.before_words[0])
        dstart = torch.cat([d.sum(0) for d in self.d.own[0]])
        return dstart, dx, dy, *dchar, *dword


class GatedSteps(Steps):
    """Steps in which a character weights the cells of all words that end with it.

    `sums` has the sums of weights and of weighted cells of each state. Words are added to them,
    then the character's own cell.

    Args:
        x: vectors of the plan's characters.
        y: vectors of the plan's words.
        given: W, b and U of characters (gates i, o, f, g), of words (i, f, g) and of word weights.
        keep: whether a derivative follows.
    """

    def __init__(
        self, plan: Any, start: Tensor, x: Tensor, y: Tensor, *given: Tensor, keep: bool
    ) -> None:
        super().__init__(plan, start, len(start) // 2)
        self.x, self.y, self.given = x, y, given
        W, b, U, W_word, b_word, U_word, W_gate, b_gate, U_gate = given
        h = self.width
        self.ends = plan.targets - plan.k
        self.x_end = x.index_select(0, self.ends)
        self.by_state, self.by_begin, self.by_cell = map(Repeated, (U, U_word, U_gate))
        self.all_gates, self.all_words = multiply(x, W, b), multiply(y, W_word, b_word)
        self.all_shares = multiply(self.x_end, W_gate, b_gate)
        self.all_cells = x.new_empty(len(y), h)
        sizes, word_sizes = plan.sizes[1:], plan.word_sizes
        self.gates, self.tanh_c = split(self.all_gates, sizes), split(x.new_empty(len(x), h), sizes)
        self.word_gates, self.shares = (
            split(self.all_words, word_sizes),
            split(self.all_shares, word_sizes),
        )
        self.cells = split(self.all_cells, word_sizes)
        self.sums = StateRows(x, plan, 2, h)
        gated = x.new_zeros(len(plan.order), 1, dtype=torch.bool)
        self.gated = split(gated.index_fill_(0, plan.targets, True), plan.sizes)

    def compute_words(self, batch: int) -> None:
        h, c = self.states.take(self.sources[batch])
        gates, cell, share = self.word_gates[batch], self.cells[batch], self.shares[batch]
        gates += self.by_begin(h)
        gates[:, : 2 * self.width].sigmoid_()
        i, f, g = gates.chunk(3, 1)
        torch.mul(f, c, out=cell).addcmul_(i, tanh(g, g))
        share += self.by_cell(cell)
        weight = share.sigmoid_().exp()
        self.sums.add(self.targets[batch], (weight, weight * cell))

    def compute_characters(self, step: LatticeStep) -> None:
        h, c = self.states.before[step.number]
        new_h, new_c = self.states.own[step.number]
        gates = self.gates[step.number - 1]
        gates += self.by_state(h)
        gates[:, : 3 * self.width].sigmoid_()
        i, o, f, g = gates.chunk(4, 1)
        torch.mul(f, c, out=new_c).addcmul_(i, tanh(g, g))
        if step.joins:
            weight, weighted = self.sums.own[step.number]
            own = i.exp()
            weight += own
            weighted.addcmul_(own, g).div_(weight)
            torch.where(self.gated[step.number], weighted, new_c, out=new_c)
        torch.mul(o, tanh(new_c, self.tanh_c[step.number - 1]), out=new_h)

    def begin_backward(self, dh: Tensor) -> None:
        sizes, word_sizes = self.plan.sizes[1:], self.plan.word_sizes
        _, _, self.U, _, _, self.U_word, _, _, self.U_gate = self.given
        self.h_begin, c_begin = self.states.take(self.plan.sources)
        self.c_begin = split(c_begin, word_sizes)
        super().begin_backward(dh)
        self.dsums = StateRows(dh, self.plan, 2, self.width)
        self.all_d, self.all_dwords, self.all_dshares = map(
            torch.empty_like, (self.all_gates, self.all_words, self.all_shares)
        )
        self.dgates, self.dwords = split(self.all_d, sizes), split(self.all_dwords, word_sizes)
        self.dshares = split(self.all_dshares, word_sizes)

    def backpropagate_characters(self, step: LatticeStep) -> None:
        dh, dc_outside = self.d.own[step.number]
        gates, d = self.gates[step.number - 1], self.dgates[step.number - 1]
        tanh_c, n_sigmoids = self.tanh_c[step.number - 1], 3 * self.width
        i, o, f, g = gates.chunk(4, 1)
        di, do, df, dg = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc = aten.tanh_backward(dh * o, tanh_c).add_(dc_outside)
        through_words = self.compute_word_gradient(step, dc, i) if step.joins else None
        torch.mul(dc, g, out=di)
        torch.mul(dc, i, out=dg)
        torch.mul(dc, self.states.before[step.number][1], out=df)
        if through_words is not None:
            _, c = self.states.own[step.number]
            di.addcmul_(through_words, g - c)
            dg += through_words
        backpropagate_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        backpropagate_tanh(dg, g)
        dh_before, dc_before = self.d.before[step.number]
        dh_before += multiply(d, self.U.t())
        dc_before.addcmul_(dc, f)

    def compute_word_gradient(self, step: LatticeStep, dc: Tensor, i: Tensor) -> Tensor:
        """Return the gradient of e^i g of the states in which words end.

        dc keeps only the gradients of the other states. c = (sum of e^i g) / (sum of e^i), so the
        gradient of a weight e^i is that of e^i g times g - c.
        """
        gated, (_, c) = self.gated[step.number], self.states.own[step.number]
        dweight, dweighted = self.dsums.own[step.number]
        torch.div(dc, self.sums.own[step.number][0], out=dweighted)
        dweighted.mul_(gated)
        torch.addcmul(dweight, dweighted, c, value=-1, out=dweight)
        dc.masked_fill_(gated, 0)
        through: Tensor = dweighted * i.exp()
        return through

    def backpropagate_words(self, batch: int) -> None:
        dweight, dweighted = self.dsums.take(self.targets[batch])
        share, dshare, cell = self.shares[batch], self.dshares[batch], self.cells[batch]
        gates, d, n_sigmoids = self.word_gates[batch], self.dwords[batch], 2 * self.width
        weight = share.exp()
        torch.mul(dweight.addcmul_(dweighted, cell), weight, out=dshare)
        backpropagate_sigmoid(dshare, share)
        dc = multiply(dshare, self.U_gate.t()).addcmul_(dweighted, weight)
        i, f, g = gates.chunk(3, 1)
        di, df, dg = d.chunk(3, 1)
        torch.mul(dc, g, out=di)
        torch.mul(dc, self.c_begin[batch], out=df)
        torch.mul(dc, i, out=dg)
        backpropagate_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        backpropagate_tanh(dg, g)
        self.d.add(self.sources[batch], (multiply(d, self.U_word.t()), dc.mul_(f)))

    def gradients(self) -> tuple[Tensor, ...]:
        W, _, _, W_word, _, _, W_gate, _, _ = self.given
        h_before = self.h.index_select(0, self.plan.before)
        dx = multiply(self.all_d, W.t())
        dx.index_add_(0, self.ends, multiply(self.all_dshares, W_gate.t()))
        results = [
            torch.cat([d.sum(0) for d in self.d.own[0]]),
            dx,
            multiply(self.all_dwords, W_word.t()),
        ]
        for d, x, state in (
            (self.all_d, self.x, h_before),
            (self.all_dwords, self.y, self.h_begin),
            (self.all_dshares, self.x_end, self.all_cells),
        ):
            results += [compute_weight_gradient(d, x), d.sum(0), compute_weight_gradient(d, state)]
        return tuple(results)
