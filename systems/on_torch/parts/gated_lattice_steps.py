"""Steps of a Lattice-LSTM with gates, as systems.on_torch.parts.lattice_steps runs them."""

from __future__ import annotations

import torch
from torch import Tensor

from systems.on_torch.parts.lattice_rows import LatticeRows, Step
from systems.on_torch.parts.lattice_steps import Steps
from systems.on_torch.parts.lstm import through_sigmoid
from systems.on_torch.parts.products import product, weight_gradient

aten = torch.ops.aten


class GatedSteps(Steps):
    """Cells of words, with their weights, are added up where they end, and a character weighs them.

    start (2 h,): before the first character. x, y: vectors of the plan's characters and words.
    weights: W, b and U of characters (gates i, o, f, g), of words (i, f, g) and of words' weights.
    sums (n, 2 h): of weights and of weighted cells; `characters` adds its own candidate's to them.
    """

    def __init__(
        self, plan: LatticeRows, start: Tensor, x: Tensor, y: Tensor, *weights: Tensor, keep: bool
    ) -> None:
        self.plan, self.keep, self.x, self.y = plan, keep, x, y
        self.W, b, self.U, self.W_word, b_word, self.U_word, self.W_gate, b_gate, self.U_gate = (
            weights
        )
        n, h = len(plan.order), self.U.shape[1]
        self.width, self.ends = h, plan.targets - plan.k
        self.x_end = x.index_select(0, self.ends)
        self.gates = product(x, self.W, b)
        self.word_gates = product(y, self.W_word, b_word)
        self.shares = product(self.x_end, self.W_gate, b_gate)
        self.states, self.sums = x.new_zeros(n, 2 * h), x.new_zeros(n, 2 * h)
        self.states[: plan.k] = start
        self.h = self.states[:, :h]
        self.cells, self.tanh_c = x.new_empty(len(y), h), x.new_empty(len(x), h)
        self.gated = x.new_zeros(n, 1, dtype=torch.bool).index_fill_(0, plan.targets, True)

    def words(self, rows: slice) -> None:
        """See Steps."""
        h, c = self.states.index_select(0, self.plan.sources[rows]).chunk(2, 1)
        gates, cell, share = self.word_gates[rows], self.cells[rows], self.shares[rows]
        gates += product(h, self.U_word)
        gates[:, : 2 * self.width].sigmoid_()
        i, f, g = gates.chunk(3, 1)
        torch.mul(f, c, out=cell)
        cell.addcmul_(i, g.tanh_())
        share += product(cell, self.U_gate)
        weight = share.sigmoid_().exp()
        self.sums.index_add_(0, self.plan.targets[rows], torch.cat([weight, weight * cell], dim=1))

    def characters(self, step: Step) -> None:
        """See Steps."""
        rows = self.plan.characters_of(step)
        h, c = self.states[step.before].chunk(2, 1)
        gates = self.gates[rows]
        gates += product(h, self.U)
        gates[:, : 3 * self.width].sigmoid_()
        i, o, f, g = gates.chunk(4, 1)
        new_h, new_c = self.states[step.own].chunk(2, 1)
        torch.mul(f, c, out=new_c)
        new_c.addcmul_(i, g.tanh_())
        if step.joins:
            weight, weighted = self.sums[step.own].chunk(2, 1)
            own = i.exp()
            weight += own
            weighted.addcmul_(own, g)
            torch.where(self.gated[step.own], weighted.div_(weight), new_c, out=new_c)
        torch.mul(o, torch.tanh(new_c, out=self.tanh_c[rows]), out=new_h)

    def begin_backward(self, dh: Tensor) -> None:
        """See Steps."""
        self.before_chars = self.states.index_select(0, self.plan.before)
        self.before_words = self.states.index_select(0, self.plan.sources)
        self.d, self.dsums = torch.zeros_like(self.states), torch.empty_like(self.sums)
        self.d[:, : self.width] = dh
        self.dgates, self.dword = torch.empty_like(self.gates), torch.empty_like(self.word_gates)
        self.dshares = torch.empty_like(self.shares)

    def characters_backward(self, step: Step) -> None:
        """See Steps."""
        rows, n_sigmoids = self.plan.characters_of(step), 3 * self.width
        dh, dc_outside = self.d[step.own].chunk(2, 1)
        gates, d, tanh_c = self.gates[rows], self.dgates[rows], self.tanh_c[rows]
        i, o, f, g = gates.chunk(4, 1)
        di, do, df, dg = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc = aten.tanh_backward(dh * o, tanh_c)
        dc += dc_outside
        if step.joins:
            through = self.join_backward(step, dc, i, g)
        torch.mul(dc, g, out=di)
        torch.mul(dc, i, out=dg)
        torch.mul(dc, self.before_chars[rows, self.width :], out=df)
        if step.joins:
            di += through[0]
            dg += through[1]
        through_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        aten.tanh_backward.grad_input(dg, g, grad_input=dg)
        dh_before, dc_before = self.d[step.before].chunk(2, 1)
        dh_before += product(d, self.U.t())
        dc_before.addcmul_(dc, f)

    def join_backward(self, step: Step, dc: Tensor, i: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Through weighing, of i and g; leaves in dc what goes through states without words."""
        gated, c = self.gated[step.own], self.states[step.own, self.width :]
        weight = self.sums[step.own, : self.width]
        dweight, dweighted = self.dsums[step.own].chunk(2, 1)
        torch.div(dc, weight, out=dweighted)
        dweighted.masked_fill_(~gated, 0)
        dc.masked_fill_(gated, 0)
        torch.mul(dweighted, c, out=dweight)
        dweight.neg_()
        through = dweighted * i.exp()
        return through * (g - c), through

    def words_backward(self, rows: slice) -> None:
        """See Steps."""
        dweight, dweighted = self.dsums.index_select(0, self.plan.targets[rows]).chunk(2, 1)
        share, dshare, cell = self.shares[rows], self.dshares[rows], self.cells[rows]
        gates, d, n_sigmoids = self.word_gates[rows], self.dword[rows], 2 * self.width
        weight = share.exp()
        torch.mul(dweight.addcmul_(dweighted, cell), weight, out=dshare)
        through_sigmoid(dshare, share)
        dc = product(dshare, self.U_gate.t()).addcmul_(dweighted, weight)
        i, f, g = gates.chunk(3, 1)
        di, df, dg = d.chunk(3, 1)
        torch.mul(dc, g, out=di)
        torch.mul(dc, self.before_words[rows, self.width :], out=df)
        torch.mul(dc, i, out=dg)
        through_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        aten.tanh_backward.grad_input(dg, g, grad_input=dg)
        dbefore = torch.cat([product(d, self.U_word.t()), dc.mul_(f)], dim=1)
        self.d.index_add_(0, self.plan.sources[rows], dbefore)

    def gradients(self) -> tuple[Tensor, ...]:
        """See Steps."""
        d, dword, dshares, h = self.dgates, self.dword, self.dshares, self.width
        dx = product(d, self.W.t()).index_add_(0, self.ends, product(dshares, self.W_gate.t()))
        return (
            self.d[: self.plan.k].sum(0),
            dx,
            product(dword, self.W_word.t()),
            weight_gradient(d, self.x),
            d.sum(0),
            weight_gradient(d, self.before_chars[:, :h]),
            weight_gradient(dword, self.y),
            dword.sum(0),
            weight_gradient(dword, self.before_words[:, :h]),
            weight_gradient(dshares, self.x_end),
            dshares.sum(0),
            weight_gradient(dshares, self.cells),
        )
