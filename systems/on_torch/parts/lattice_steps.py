"""All steps of a lattice network as one function, its derivative written by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from systems.on_torch.parts.lattice_rows import LatticeRows, Step
from systems.on_torch.parts.lattice_cells import Cells


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

    keep: whether a derivative follows.
    """

    plan: LatticeRows
    keep: bool
    h: Tensor

    @abstractmethod
    def words(self, rows: slice) -> None:
        """Compute some words, and add them to the states in which they end."""

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
    def words_backward(self, rows: slice) -> None:
        """Through some words."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, ...]:
        """Of all that was given."""


class SummedSteps(Steps):
    """A state is the sum of the cells of all arcs into it.

    cells: of both kinds of arcs. start (n_states h,): before the first character. x, y: vectors of
    the plan's characters and words. weights: of the characters' cells, then as many of the words'.
    """

    def __init__(
        self,
        cells: type[Cells],
        plan: LatticeRows,
        start: Tensor,
        x: Tensor,
        y: Tensor,
        *weights: Tensor,
        keep: bool,
    ) -> None:
        self.plan, self.keep = plan, keep
        half = len(weights) // 2
        self.char = cells(x, *weights[:half], keep=keep)
        self.word = cells(y, *weights[half:], keep=keep)
        self.states = x.new_zeros(len(plan.order), len(start))
        self.states[: plan.k] = start
        self.h = self.states[:, : self.char.width]

    def words(self, rows: slice) -> None:
        """See Steps."""
        before = self.states.index_select(0, self.plan.sources[rows])
        self.states.index_add_(0, self.plan.targets[rows], self.word.forward(rows, before))

    def characters(self, step: Step) -> None:
        """See Steps."""
        rows = self.plan.characters_of(step)
        self.states[step.own].add_(self.char.forward(rows, self.states[step.before]))

    def begin_backward(self, dh: Tensor) -> None:
        """See Steps."""
        self.before_chars = self.states.index_select(0, self.plan.before)
        self.before_words = self.states.index_select(0, self.plan.sources)
        self.d = torch.zeros_like(self.states)
        self.d[:, : dh.shape[1]] = dh

    def characters_backward(self, step: Step) -> None:
        """See Steps."""
        rows = self.plan.characters_of(step)
        dbefore = self.char.backward(rows, self.d[step.own], self.before_chars[rows])
        self.d[step.before].add_(dbefore)

    def words_backward(self, rows: slice) -> None:
        """See Steps."""
        d = self.d.index_select(0, self.plan.targets[rows])
        dbefore = self.word.backward(rows, d, self.before_words[rows])
        self.d.index_add_(0, self.plan.sources[rows], dbefore)

    def gradients(self) -> tuple[Tensor, ...]:
        """See Steps."""
        dx, *dchar = self.char.gradients(self.before_chars)
        dy, *dword = self.word.gradients(self.before_words)
        return self.d[: self.plan.k].sum(0), dx, dy, *dchar, *dword
