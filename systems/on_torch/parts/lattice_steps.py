"""All steps of a lattice network as one function, its derivative written by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from systems.on_torch.parts.lattice_cells import Cells
from systems.plans.lattices import Step


class LatticeSteps(torch.autograd.Function):
    """h (n, h) of all rows of a plan, by steps of a kind from all that they are given."""

    @staticmethod
    def forward(ctx, kind, plan, *given):  # type: ignore[no-untyped-def]
        """Step after step, words first."""
        steps = kind(plan, *given, keep=not torch.is_inference_mode_enabled())
        for step in plan.steps:
            if step.words is not None:
                steps.words(step.words)
            steps.characters(step)
        ctx.steps = steps
        # Not a tensor of the steps itself: it would hold ctx, which holds it, and no mini-batch be
        # freed before Python looks for cycles, which it does not while passes are timed.
        return steps.h.detach()

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        """Gradients of all that was given."""
        steps, ctx.steps = ctx.steps, None  # memory for the next mini-batch
        steps.begin_backward(dh)
        for step in reversed(steps.plan.steps):
            steps.characters_backward(step)
            if step.words is not None:
                steps.words_backward(step.words)
        return None, None, *steps.gradients()


class Steps(ABC):
    """States of all rows, and cells of all arcs.

    h (n, h): of all rows. keep: whether a derivative follows.
    """

    plan: Any
    h: Tensor

    @abstractmethod
    def words(self, batch: int) -> None:
        """Compute a batch of words, and add them to where they end."""

    @abstractmethod
    def characters(self, step: Step) -> None:
        """Compute a step's characters, and so its states."""

    @abstractmethod
    def begin_backward(self, dh: Tensor) -> None:
        """Take the gradient of h of all rows."""

    @abstractmethod
    def characters_backward(self, step: Step) -> None:
        """Through a step's characters, whose states' gradients are complete."""

    @abstractmethod
    def words_backward(self, batch: int) -> None:
        """Through a batch of words."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, ...]:
        """Of all that was given."""


class Rows:
    """Vectors of all rows (n, h) of each of some kinds, zeros at first.

    Of every kind `whole` has all rows. own: views of every step's rows. before: of the rows of the
    step before it, where it goes on.
    """

    def __init__(self, like: Tensor, plan: Any, n_kinds: int, width: int) -> None:
        self.whole = [like.new_zeros(len(plan.order), width) for _ in range(n_kinds)]
        steps = [torch.split(rows, plan.sizes) for rows in self.whole]
        earlier = [map(first_rows, kind, plan.sizes[1:]) for kind in steps]
        self.own: list[tuple[Tensor, ...]] = list(zip(*steps, strict=True))
        self.before: list[tuple[Tensor, ...]] = [(), *zip(*earlier, strict=True)]

    def take(self, rows: Tensor) -> list[Tensor]:
        """Of any rows, copied."""
        return [whole.index_select(0, rows) for whole in self.whole]

    def add(self, rows: Tensor, more: Sequence[Tensor]) -> None:
        """Add to any rows, of which some may be the same."""
        for whole, new in zip(self.whole, more, strict=True):
            whole.index_add_(0, rows, new)


def first_rows(rows: Tensor, n: int) -> Tensor:
    """As many of the rows; there are no fewer."""
    return rows if len(rows) == n else rows[:n]


class SummedSteps(Steps):
    """A state is the sum of the cells of all arcs into it.

    cells: of both kinds of arcs. start: h, and what else a state has, before the first character,
    side by side. x, y: vectors of the plan's characters and words. weights: of the characters'
    cells, then as many of the words'.
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
        self.plan = plan
        half = len(weights) // 2
        self.char = cells(plan.sizes[1:], x, *weights[:half], keep=keep)
        self.word = cells(plan.word_sizes, y, *weights[half:], keep=keep)
        width = self.char.width
        self.states = Rows(x, plan, len(start) // width, width)
        for states, first in zip(self.states.own[0], torch.split(start, width), strict=True):
            states[:] = first
        self.h = self.states.whole[0]
        self.sources = torch.split(plan.sources, plan.word_sizes)
        self.targets = torch.split(plan.targets, plan.word_sizes)

    def words(self, batch: int) -> None:
        """See Steps."""
        before = self.states.take(self.sources[batch])
        new = [torch.zeros_like(state) for state in before]
        self.word.forward(batch, before, new)
        self.states.add(self.targets[batch], new)

    def characters(self, step: Step) -> None:
        """See Steps."""
        number, before = step.number, self.states.before[step.number]
        self.char.forward(number - 1, before, self.states.own[number])

    def begin_backward(self, dh: Tensor) -> None:
        """See Steps."""
        self.char.begin_backward()
        self.word.begin_backward()
        self.before_words = self.states.take(self.plan.sources)
        self.of_words = [torch.split(states, self.plan.word_sizes) for states in self.before_words]
        self.d = Rows(dh, self.plan, len(self.states.whole), self.char.width)
        self.d.whole[0].copy_(dh)

    def characters_backward(self, step: Step) -> None:
        """See Steps."""
        number, before = step.number, self.states.before[step.number]
        self.char.backward(number - 1, self.d.own[number], before, self.d.before[number])

    def words_backward(self, batch: int) -> None:
        """See Steps."""
        d, before = self.d.take(self.targets[batch]), [states[batch] for states in self.of_words]
        new = [torch.zeros_like(state) for state in before]
        self.word.backward(batch, d, before, new)
        self.d.add(self.sources[batch], new)

    def gradients(self) -> tuple[Tensor, ...]:
        """See Steps."""
        dx, *dchar = self.char.gradients(self.h.index_select(0, self.plan.before))
        dy, *dword = self.word.gradients(self.before_words[0])
        dstart = torch.cat([d.sum(0) for d in self.d.own[0]])
        return dstart, dx, dy, *dchar, *dword
