"""Stacks and buffers of parsers side by side: rows of states that every step reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from systems.on_torch.parts.nonlinear import tanh


class Rows(NamedTuple):
    """What one step reads, of each of the n parsers that go on.

    pushed (n,): of the buffer's states, what a shift pushes; of a reduction, any. reduced (r,): the
    parsers that reduce. pairs (2 r,): of the stacks' states, the two that each of these joins.
    below (n,): what lies below the state that is pushed. first (n,): of the buffer's states, the
    first one behind the step.
    """

    pushed: Tensor
    reduced: Tensor
    pairs: Tensor
    below: Tensor
    first: Tensor


class Stacks:
    """All stacks share one array: the bottom, then what each step has pushed, parser by parser.

    states (1 + m, h), for m steps. buffers: of each parser the rows of its words in the buffer's
    states, the first word first; row 0 is the empty buffer's.
    """

    def __init__(self, bottom: Tensor, n_steps: int, buffers: Sequence[range]) -> None:
        self.states = bottom.new_empty(1 + n_steps, len(bottom))
        self.states[0] = bottom
        self._n_used = 1
        self._stacks = [[0] for _ in buffers]
        self._firsts = [buffer.start for buffer in buffers]
        self._ends = [buffer.stop for buffer in buffers]

    def step(self, shifts: Sequence[bool]) -> Rows:
        """Take from stacks and buffers what these actions push."""
        pushed, reduced, pairs, below = [], [], [], []
        firsts, ends, new = self._firsts, self._ends, self._n_used
        for i, (is_shift, stack) in enumerate(zip(shifts, self._stacks, strict=False)):
            if is_shift:
                first = firsts[i]
                pushed.append(first)
                firsts[i] = first + 1 if first + 1 < ends[i] else 0
            else:
                pushed.append(0)
                reduced.append(i)
                pairs += stack[-2:]
                del stack[-2:]
            below.append(stack[-1])
            stack.append(new + i)
        parts = pushed, reduced, pairs, below, firsts[: len(shifts)]
        joined = torch.tensor([row for part in parts for row in part], device=self.states.device)
        return Rows(*torch.split(joined, [len(part) for part in parts]))

    def push(self, x: Tensor) -> Tensor:
        """Write tanh x (n, h) on top of the first n stacks; where it is written."""
        at, self._n_used = self._n_used, self._n_used + len(x)
        return tanh(x, self.states[at : self._n_used])
