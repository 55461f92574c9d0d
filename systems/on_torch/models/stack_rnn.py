"""StackRNN in PyTorch, one sentence at a time (Recursive) and all at once (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from harness.models.stack_rnn import StackRNN
from harness.values.instances import Chain
from systems.on_torch.parts.nonlinear import tanh
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.rows import Columns, columns, to_device
from systems.on_torch.parts.sentences import joined, lengths_of, tensor
from systems.on_torch.parts.stacks import Rows, Stacks
from systems.on_torch.parts.untrained import UntrainedParameters
from systems.plans.programs import Once


class Sentence(NamedTuple):
    """One sentence: its words and the labels of its steps, and whether each step shifts."""

    words: Tensor
    labels: Tensor
    actions: list[bool]


class Recursive(PlainParameters):
    """One sentence at a time; every decision is read before the next."""

    def __init__(self, model: StackRNN) -> None:
        super().__init__(model)
        self.model, self.read = model, Once(self.tensors)

    def prepare(self, chains: Sequence[Chain]) -> list[Sentence]:
        """Tensors on the device."""
        return [self.read(chain) for chain in chains]

    def tensors(self, chain: Chain) -> Sentence:
        """Of one sentence."""
        device, model = self.embedding.weight.device, self.model
        labels = torch.tensor(model.labels(chain), device=device)
        return Sentence(tensor(chain.words, device), labels, model.actions(chain))

    def forward(self, sentences: list[Sentence]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all steps."""
        losses, outputs = [], []
        for sentence in sentences:
            outputs.append(torch.cat(self.parse(sentence)) @ self["W_out"])
            losses.append(functional.cross_entropy(outputs[-1], sentence.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def parse(self, sentence: Sentence) -> list[Tensor]:
        """What every decision is made from."""
        buffer, stack = self.buffer(sentence.words), [self["bottom"][None]]
        stack.append(self.of_two("push", buffer.pop(), stack[-1]))
        states = [self.of_two("decide", stack[-1], buffer[-1])]
        for shifts in sentence.actions:
            float(states[-1][0, 0])  # waits: only now is known what to do
            if shifts:
                pushed = buffer.pop()
            else:
                upper = stack.pop()
                pushed = self.of_two("compose", stack.pop(), upper)
            stack.append(self.of_two("push", pushed, stack[-1]))
            states.append(self.of_two("decide", stack[-1], buffer[-1]))
        return states

    def buffer(self, words: Tensor) -> list[Tensor]:
        """States behind every word (1, h), read from the last to the first, which comes last."""
        x = torch.addmm(self["b_buffer"], self.embedding(words), self["W_buffer"])
        states, U = [self["end"][None]], self["U_buffer"]
        for row in reversed(torch.split(x, 1)):
            states.append(torch.tanh(torch.addmm(row, states[-1], U)))
        return states

    def of_two(self, name: str, first: Tensor, second: Tensor) -> Tensor:
        """tanh([first second] W + b)."""
        both = torch.cat([first, second], dim=1)
        return torch.tanh(torch.addmm(self[f"b_{name}"], both, self[f"W_{name}"]))


class Plan(NamedTuple):
    """Sentences side by side, those with most words first.

    words (n,): by place. along: how the buffer's RNN runs. buffers: of each sentence the rows of
    its words, behind the empty buffer's. actions: of each step, whether each sentence that goes on
    shifts. labels (m,): of all steps, step by step. rows (m,): of every step, sentence by sentence,
    where it stands.
    """

    words: Tensor
    along: Columns
    buffers: list[range]
    actions: list[list[bool]]
    labels: Tensor
    rows: Tensor


class Levels(UntrainedParameters):
    """All sentences at once, an action of each a step.

    What the buffer's states give to a push and to a decision is one product each, beforehand. Every
    step pushes one state of each sentence, so that the tops of all stacks are the newest states.
    """

    def __init__(self, model: StackRNN) -> None:
        super().__init__(model)
        self.model, self.read = model, Once(self.listed)

    def prepare(self, chains: Sequence[Chain]) -> list[tuple[Chain, list[bool], list[int]]]:
        """The sentences, their actions and labels; the first step always shifts."""
        return [self.read(chain) for chain in chains]

    def listed(self, chain: Chain) -> tuple[Chain, list[bool], list[int]]:
        """Of one sentence."""
        return chain, [True, *self.model.actions(chain)], self.model.labels(chain)

    def plan(
        self, batch: Sequence[tuple[Chain, list[bool], list[int]]], device: torch.device
    ) -> Plan:
        """Words by place, steps in columns."""
        chains, actions, labels = zip(*batch, strict=True)
        lengths = lengths_of(chains)
        ends = 1 + np.cumsum(lengths)
        (words,) = joined(device, [chain.words for chain in chains])
        steps = columns(2 * lengths - 1, device)
        order = steps.order.tolist()
        (by_sentence,) = to_device(device, np.concatenate(labels))
        return Plan(
            words,
            columns(lengths, device),
            [range(int(ends[i] - lengths[i]), int(ends[i])) for i in order],
            [[actions[i][k] for i in order[:n]] for k, n in enumerate(steps.sizes)],
            by_sentence[steps.along.places],
            steps.along.rows,
        )

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all steps, step by step."""
        stacks = Stacks(self["bottom"], len(plan.labels), plan.buffers)
        buffer = self.buffer(plan)
        given = self.by("W_push", "b_push", 0)(buffer), self.by("W_decide", "b_decide", 1)(buffer)
        decided: list[Tensor] = []
        for shifts in plan.actions:
            if decided:
                decided[-1][: len(shifts), 0].tolist()  # waits: only now is known what to do
            decided.append(self.step(stacks, stacks.step(shifts), *given))
        scores = self.by("W_out")(torch.cat(decided))
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def buffer(self, plan: Plan) -> Tensor:
        """States of the empty buffer, then of all words by place, read from the last (1 + n, h)."""
        order, end = plan.along.against, self["end"]
        x = self.by("W_buffer", "b_buffer")(self.embedding(order.arrange(plan.words)))
        states, add_product = torch.split(x, plan.along.sizes), self.by("U_buffer").add_to
        before = end.expand(len(states[0]), -1)
        for own in states:
            add_product(own, before[: len(own)])
            before = tanh(own, own)
        return torch.cat([end[None], order.restore(x)])

    def step(self, stacks: Stacks, rows: Rows, to_push: Tensor, to_decide: Tensor) -> Tensor:
        """Push a state of each sentence; what its next decision is made from (n, h)."""
        x = to_push.index_select(0, rows.pushed)
        if len(rows.reduced):
            pairs = stacks.states.index_select(0, rows.pairs).view(len(rows.reduced), -1)
            composed = self.by("W_compose", "b_compose")(pairs)
            pushed = self.by("W_push", "b_push", 0)(tanh(composed, composed))
            x.index_copy_(0, rows.reduced, pushed)
        self.by("W_push", half=1).add_to(x, stacks.states.index_select(0, rows.below))
        t = to_decide.index_select(0, rows.first)
        self.by("W_decide", half=0).add_to(t, stacks.push(x))
        return tanh(t, t)

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Sentence by sentence."""
        ordered: NDArray[Any] = outputs[plan.rows.cpu().numpy()]
        return ordered


EAGER = {"stack_rnn": Recursive}
LEVELS = {"stack_rnn": Levels}
