"""StackRNN in PyTorch, one sentence at a time, and all sentences in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_torch.layers import ProgramNet
from dynbatch.systems.on_torch.net import Batched, OneByOne, score_labels
from dynbatch.systems.on_torch.products import tanh
from dynbatch.systems.on_torch.rows import UnpaddedColumns, arrange_columns, to_tensor
from dynbatch.systems.plans.sentences import count_words


class StackSentence(NamedTuple):
    """Sentence.

    Attributes:
        actions: whether each step shifts.
    """

    words: Tensor
    labels: Tensor
    actions: list[bool]


class Recursive(ProgramNet, OneByOne):
    """One sentence at a time; every decision is read before the next step."""

    def convert_chain(self, chain: Chain) -> StackSentence:
        """Convert the sentence to tensors on the device."""
        device, model = self.embedding.weight.device, self.model
        labels = torch.tensor(model.expand_labels(chain), device=device)
        return StackSentence(to_tensor(chain.words, device), labels, model.replay_actions(chain))

    def yield_scores(self, sentences: list[StackSentence]) -> Iterator[tuple[Tensor, Tensor]]:
        for sentence in sentences:
            yield torch.cat(self.parse(sentence)) @ self["W_out"], sentence.labels

    def parse(self, sentence: StackSentence) -> list[Tensor]:
        """Return the state from which each decision is made."""
        buffer, stack = self.compute_buffer(sentence.words), [self["bottom"][None]]
        stack.append(self.combine_states("push", buffer.pop(), stack[-1]))
        states = [self.combine_states("decide", stack[-1], buffer[-1])]
        for shifts in sentence.actions:
            float(states[-1][0, 0])  # synchronizes to read the decision
            if shifts:
                pushed = buffer.pop()
            else:
                upper = stack.pop()
                pushed = self.combine_states("compose", stack.pop(), upper)
            stack.append(self.combine_states("push", pushed, stack[-1]))
            states.append(self.combine_states("decide", stack[-1], buffer[-1]))
        return states

    def compute_buffer(self, words: Tensor) -> list[Tensor]:
        """Return states (1, h) of the empty buffer, then of words from the last to the first."""
        x = torch.addmm(self["b_buffer"], self.embedding(words), self["W_buffer"])
        states, U = [self["end"][None]], self["U_buffer"]
        for row in reversed(torch.split(x, 1)):
            states.append(torch.tanh(torch.addmm(row, states[-1], U)))
        return states

    def combine_states(self, name: str, first: Tensor, second: Tensor) -> Tensor:
        """Return tanh([first second] W + b)."""
        both = torch.cat([first, second], dim=1)
        return torch.tanh(torch.addmm(self[f"b_{name}"], both, self[f"W_{name}"]))


class StackRows(NamedTuple):
    """Rows that one step reads, for each of the n parsers that have not ended.

    Attributes:
        pushed: (n,) row of the buffer's states that a shift pushes; arbitrary for a reduction.
        reduced: (r,) parsers that reduce.
        pairs: (2 r,) rows of the stacks' states that each reduction joins.
        below: (n,) row of the state below the pushed one.
        first: (n,) row of the buffer's first state after the step.
    """

    pushed: Tensor
    reduced: Tensor
    pairs: Tensor
    below: Tensor
    first: Tensor


class Stacks:
    """All stacks in one array: the bottom, then the states that each step has pushed, by parser.

    Attributes:
        states: (1 + m, h) states, for m pushes.
    """

    def __init__(self, bottom: Tensor, n_steps: int, buffers: Sequence[range]) -> None:
        self.states = bottom.new_empty(1 + n_steps, len(bottom))
        self.states[0] = bottom
        self._n_used = 1
        self._stacks = [[0] for _ in buffers]
        self._firsts = [buffer.start for buffer in buffers]
        self._ends = [buffer.stop for buffer in buffers]

    def step(self, shifts: Sequence[bool]) -> StackRows:
        """Return the rows that these actions read, and update stacks and buffers."""
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
        return StackRows(*torch.split(joined, [len(part) for part in parts]))

    def push(self, x: Tensor) -> Tensor:
        """Write tanh x (n, h) on top of the first n stacks; return the written states."""
        at, self._n_used = self._n_used, self._n_used + len(x)
        return tanh(x, self.states[at : self._n_used])


class StackBatch(NamedTuple):
    """Sentences, those with the most words first.

    Attributes:
        words: (n,) words by position.
        along: plan of the buffer's RNN.
        buffers: rows of each sentence's words in the buffer's states; row 0 is the empty buffer.
        actions: of each step, whether each sentence that has not ended shifts.
        labels: (m,) labels of all steps, step by step.
        rows: (m,) row of every step, sentence by sentence.
    """

    words: Tensor
    along: UnpaddedColumns
    buffers: list[range]
    actions: list[list[bool]]
    labels: Tensor
    rows: Tensor


class Levels(ProgramNet, Batched):
    """All sentences in parallel, one action of each per step.

    One product each, before the first step, computes the terms of the buffer's states in a push and
    in a decision. Every step pushes one state per sentence, so the tops of all stacks are the
    latest states.
    """

    def convert_chain(self, chain: Chain) -> tuple[Chain, list[bool], list[int]]:
        """Return the sentence, its actions and labels; the first step always shifts."""
        return chain, [True, *self.model.replay_actions(chain)], self.model.expand_labels(chain)

    def plan(
        self, batch: Sequence[tuple[Chain, list[bool], list[int]]], device: torch.device
    ) -> StackBatch:
        """Plan words by position, and steps in columns."""
        chains, actions, labels = zip(*batch, strict=True)
        lengths = count_words(chains)
        ends = 1 + np.cumsum(lengths)
        words = to_tensor(np.concatenate([chain.words for chain in chains]), device)
        steps = arrange_columns(2 * lengths - 1, device)
        order = steps.order.tolist()
        by_sentence = to_tensor(np.concatenate(labels), device)
        return StackBatch(
            words,
            arrange_columns(lengths, device),
            [range(int(ends[i] - lengths[i]), int(ends[i])) for i in order],
            [[actions[i][k] for i in order[:n]] for k, n in enumerate(steps.sizes)],
            by_sentence[steps.along.places],
            steps.along.rows,
        )

    def forward(self, plan: StackBatch) -> tuple[Tensor, Tensor]:
        stacks = Stacks(self["bottom"], len(plan.labels), plan.buffers)
        buffer = self.compute_buffer(plan)
        given = (
            self.get_product("W_push", "b_push", 0)(buffer),
            self.get_product("W_decide", "b_decide", 1)(buffer),
        )
        decided: list[Tensor] = []
        for shifts in plan.actions:
            if decided:
                decided[-1][: len(shifts), 0].tolist()  # synchronizes to read the decisions
            decided.append(self.step(stacks, stacks.step(shifts), *given))
        return score_labels(self.get_product("W_out")(torch.cat(decided)), plan.labels)

    def compute_buffer(self, plan: StackBatch) -> Tensor:
        """Return states (1 + n, h) of the empty buffer, then of all words by position.

        Words are read from the last to the first.
        """
        order, end = plan.along.against, self["end"]
        x = self.get_product("W_buffer", "b_buffer")(self.embedding(order.arrange(plan.words)))
        states, add_product = torch.split(x, plan.along.sizes), self.get_product("U_buffer").add_to
        before = end.expand(len(states[0]), -1)
        for own in states:
            add_product(own, before[: len(own)])
            before = tanh(own, own)
        return torch.cat([end[None], order.restore(x)])

    def step(self, stacks: Stacks, rows: StackRows, to_push: Tensor, to_decide: Tensor) -> Tensor:
        """Push a state per sentence; return the states of the next decisions (n, h)."""
        x = to_push.index_select(0, rows.pushed)
        if len(rows.reduced):
            pairs = stacks.states.index_select(0, rows.pairs).view(len(rows.reduced), -1)
            composed = self.get_product("W_compose", "b_compose")(pairs)
            pushed = self.get_product("W_push", "b_push", 0)(tanh(composed, composed))
            x.index_copy_(0, rows.reduced, pushed)
        self.get_product("W_push", half=1).add_to(x, stacks.states.index_select(0, rows.below))
        t = to_decide.index_select(0, rows.first)
        self.get_product("W_decide", half=0).add_to(t, stacks.push(x))
        return tanh(t, t)

    def find_canonical_rows(self, plan: StackBatch) -> NDArray[np.integer]:
        return plan.rows.cpu().numpy()


EAGER = {"stack_rnn": Recursive}
LEVELS = {"stack_rnn": Levels}
