"""Steps of a Lattice-LSTM with gates, as systems.on_torch.parts.lattice_steps runs them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, split

from systems.on_torch.parts.lattice_steps import Rows, Steps
from systems.on_torch.parts.lstm import through_sigmoid
from systems.on_torch.parts.nonlinear import tanh, through_tanh
from systems.on_torch.parts.products import Repeated, product, weight_gradient
from systems.plans.lattices import Step

aten = torch.ops.aten


class GatedSteps(Steps):
    """Cells of words, with their weights, are added up where they end, and a character weighs them.

    start (2 h,): h and c before the first character. x, y: vectors of the plan's characters and
    words. given: W, b and U of characters (gates i, o, f, g), of words (i, f, g) and of words'
    weights. sums: of weights and of weighted cells; a character's own are added to them.
    """

    def __init__(
        self, plan: Any, start: Tensor, x: Tensor, y: Tensor, *given: Tensor, keep: bool
    ) -> None:
        self.plan, self.x, self.y, self.given = plan, x, y, given
        W, b, U, W_word, b_word, U_word, W_gate, b_gate, U_gate = given
        self.width = h = len(start) // 2
        self.ends = plan.targets - plan.k
        self.x_end = x.index_select(0, self.ends)
        self.by_state, self.by_begin, self.by_cell = map(Repeated, (U, U_word, U_gate))
        self.all_gates, self.all_words = product(x, W, b), product(y, W_word, b_word)
        self.all_shares = product(self.x_end, W_gate, b_gate)
        self.all_cells = x.new_empty(len(y), h)
        sizes, words = plan.sizes[1:], plan.word_sizes
        self.gates, self.tanh_c = split(self.all_gates, sizes), split(x.new_empty(len(x), h), sizes)
        self.word_gates, self.shares = split(self.all_words, words), split(self.all_shares, words)
        self.cells = split(self.all_cells, words)
        self.states, self.sums = Rows(x, plan, 2, h), Rows(x, plan, 2, h)
        for states, first in zip(self.states.own[0], split(start, h), strict=True):
            states[:] = first
        self.h = self.states.whole[0]
        gated = x.new_zeros(len(plan.order), 1, dtype=torch.bool)
        self.gated = split(gated.index_fill_(0, plan.targets, True), plan.sizes)
        self.sources, self.targets = split(plan.sources, words), split(plan.targets, words)

    def words(self, batch: int) -> None:
        """See Steps."""
        h, c = self.states.take(self.sources[batch])
        gates, cell, share = self.word_gates[batch], self.cells[batch], self.shares[batch]
        gates += self.by_begin(h)
        gates[:, : 2 * self.width].sigmoid_()
        i, f, g = gates.chunk(3, 1)
        torch.mul(f, c, out=cell).addcmul_(i, tanh(g, g))
        share += self.by_cell(cell)
        weight = share.sigmoid_().exp()
        self.sums.add(self.targets[batch], (weight, weight * cell))

    def characters(self, step: Step) -> None:
        """See Steps."""
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
        """See Steps."""
        sizes, words = self.plan.sizes[1:], self.plan.word_sizes
        _, _, self.U, _, _, self.U_word, _, _, self.U_gate = self.given
        self.h_begin, c_begin = self.states.take(self.plan.sources)
        self.c_begin = split(c_begin, words)
        self.d, self.dsums = (Rows(dh, self.plan, 2, self.width) for _ in range(2))
        self.d.whole[0].copy_(dh)
        self.all_d, self.all_dwords, self.all_dshares = map(
            torch.empty_like, (self.all_gates, self.all_words, self.all_shares)
        )
        self.dgates, self.dwords = split(self.all_d, sizes), split(self.all_dwords, words)
        self.dshares = split(self.all_dshares, words)

    def characters_backward(self, step: Step) -> None:
        """See Steps."""
        dh, dc_outside = self.d.own[step.number]
        gates, d = self.gates[step.number - 1], self.dgates[step.number - 1]
        tanh_c, n_sigmoids = self.tanh_c[step.number - 1], 3 * self.width
        i, o, f, g = gates.chunk(4, 1)
        di, do, df, dg = d.chunk(4, 1)
        torch.mul(dh, tanh_c, out=do)
        dc = aten.tanh_backward(dh * o, tanh_c).add_(dc_outside)
        through_words = self.through_words(step, dc, i) if step.joins else None
        torch.mul(dc, g, out=di)
        torch.mul(dc, i, out=dg)
        torch.mul(dc, self.states.before[step.number][1], out=df)
        if through_words is not None:
            _, c = self.states.own[step.number]
            di.addcmul_(through_words, g - c)
            dg += through_words
        through_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        through_tanh(dg, g)
        dh_before, dc_before = self.d.before[step.number]
        dh_before += product(d, self.U.t())
        dc_before.addcmul_(dc, f)

    def through_words(self, step: Step, dc: Tensor, i: Tensor) -> Tensor:
        """Of the states in which words end, the gradient of e^i g; leaves in dc what others have.

        c = (sum of e^i g) / (sum of e^i): that of a weight e^i is that of e^i g times g - c.
        """
        gated, (_, c) = self.gated[step.number], self.states.own[step.number]
        dweight, dweighted = self.dsums.own[step.number]
        torch.div(dc, self.sums.own[step.number][0], out=dweighted)
        dweighted.mul_(gated)
        torch.addcmul(dweight, dweighted, c, value=-1, out=dweight)
        dc.masked_fill_(gated, 0)
        through: Tensor = dweighted * i.exp()
        return through

    def words_backward(self, batch: int) -> None:
        """See Steps."""
        dweight, dweighted = self.dsums.take(self.targets[batch])
        share, dshare, cell = self.shares[batch], self.dshares[batch], self.cells[batch]
        gates, d, n_sigmoids = self.word_gates[batch], self.dwords[batch], 2 * self.width
        weight = share.exp()
        torch.mul(dweight.addcmul_(dweighted, cell), weight, out=dshare)
        through_sigmoid(dshare, share)
        dc = product(dshare, self.U_gate.t()).addcmul_(dweighted, weight)
        i, f, g = gates.chunk(3, 1)
        di, df, dg = d.chunk(3, 1)
        torch.mul(dc, g, out=di)
        torch.mul(dc, self.c_begin[batch], out=df)
        torch.mul(dc, i, out=dg)
        through_sigmoid(d[:, :n_sigmoids], gates[:, :n_sigmoids])
        through_tanh(dg, g)
        self.d.add(self.sources[batch], (product(d, self.U_word.t()), dc.mul_(f)))

    def gradients(self) -> tuple[Tensor, ...]:
        """See Steps."""
        W, _, _, W_word, _, _, W_gate, _, _ = self.given
        h_before = self.h.index_select(0, self.plan.before)
        dx = product(self.all_d, W.t())
        dx.index_add_(0, self.ends, product(self.all_dshares, W_gate.t()))
        found = [
            torch.cat([d.sum(0) for d in self.d.own[0]]),
            dx,
            product(self.all_dwords, W_word.t()),
        ]
        for d, x, state in (
            (self.all_d, self.x, h_before),
            (self.all_dwords, self.y, self.h_begin),
            (self.all_dshares, self.x_end, self.all_cells),
        ):
            found += [weight_gradient(d, x), d.sum(0), weight_gradient(d, state)]
        return tuple(found)
