"""StackRNN in PyTorch, one sentence at a time (Recursive) and all at once (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.models.stack_rnn import N_ACTIONS, StackRNN
from harness.values.instances import Chain
from systems.on_torch.parts.nonlinear import tanh
from systems.on_torch.parts.rows import Columns, columns, to_device
from systems.on_torch.parts.sentences import joined, lengths_of, tensor
from systems.on_torch.parts.stacks import Rows, Stacks
from systems.on_torch.parts.untrained import UntrainedLinear, UntrainedPair


class _StackRNN(nn.Module):
    """Parameters of harness.models.stack_rnn."""

    push: nn.Linear
    decide: nn.Linear

    def __init__(self, model: StackRNN, kind: type[nn.Linear], pair_kind: type[nn.Linear]) -> None:
        super().__init__()
        self.actions, self.labels = model.actions, model.labels
        sizes = model.sizes
        h, e = sizes.hidden_size, sizes.embedding_size
        self.embedding = nn.Embedding(sizes.of("words"), e)
        self.end, self.bottom = nn.Parameter(torch.zeros(h)), nn.Parameter(torch.zeros(h))
        self.of_word, self.of_behind = kind(e, h), kind(h, h, bias=False)
        self.push, self.decide = pair_kind(2 * h, h), pair_kind(2 * h, h)
        self.compose = kind(2 * h, h)
        self.classifier = kind(h, N_ACTIONS, bias=False)
        self.SHARED = {
            "embedding": "embedding.weight",
            "end": "end",
            "bottom": "bottom",
            "W_buffer": "of_word.weight",
            "b_buffer": "of_word.bias",
            "U_buffer": "of_behind.weight",
            "W_out": "classifier.weight",
        }
        for name in ("push", "compose", "decide"):
            self.SHARED |= {f"W_{name}": f"{name}.weight", f"b_{name}": f"{name}.bias"}


class Sentence(NamedTuple):
    """One sentence: its words and the labels of its steps, and whether each step shifts."""

    words: Tensor
    labels: Tensor
    actions: list[bool]


class Recursive(_StackRNN):
    """One sentence at a time; every decision is read before the next."""

    def __init__(self, model: StackRNN) -> None:
        super().__init__(model, nn.Linear, nn.Linear)

    def prepare(self, chains: Sequence[Chain]) -> list[Sentence]:
        """Tensors on the device."""
        device = self.end.device
        return [
            Sentence(
                tensor(chain.words, device),
                torch.tensor(self.labels(chain), device=device),
                self.actions(chain),
            )
            for chain in chains
        ]

    def forward(self, sentences: list[Sentence]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all steps."""
        losses, outputs = [], []
        for sentence in sentences:
            outputs.append(self.classifier(torch.stack(self.parse(sentence))))
            losses.append(functional.cross_entropy(outputs[-1], sentence.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def parse(self, sentence: Sentence) -> list[Tensor]:
        """What every decision is made from."""
        buffer: list[Tensor] = [self.end]
        stack: list[Tensor] = [self.bottom]
        for x in self.of_word(self.embedding(sentence.words)).flip(0):
            buffer.append(torch.tanh(x + self.of_behind(buffer[-1])))
        stack.append(self.of_two(self.push, buffer.pop(), stack[-1]))
        states = [self.of_two(self.decide, stack[-1], buffer[-1])]
        for shifts in sentence.actions:
            float(states[-1][0])  # waits: only now is known what to do
            if shifts:
                pushed = buffer.pop()
            else:
                upper = stack.pop()
                pushed = self.of_two(self.compose, stack.pop(), upper)
            stack.append(self.of_two(self.push, pushed, stack[-1]))
            states.append(self.of_two(self.decide, stack[-1], buffer[-1]))
        return states

    def of_two(self, layer: nn.Linear, first: Tensor, second: Tensor) -> Tensor:
        """tanh(W [first; second] + b)."""
        return torch.tanh(layer(torch.cat([first, second])))


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


class Levels(_StackRNN):
    """All sentences at once, an action of each a step.

    What the buffer's states give to a push and to a decision is one product each, beforehand. Every
    step pushes one state of each sentence, so that the tops of all stacks are the newest states.
    """

    push: UntrainedPair
    decide: UntrainedPair

    def __init__(self, model: StackRNN) -> None:
        super().__init__(model, UntrainedLinear, UntrainedPair)

    def prepare(self, chains: Sequence[Chain]) -> list[tuple[Chain, list[bool], list[int]]]:
        """The sentences, their actions and labels; the first step always shifts."""
        return [(chain, [True, *self.actions(chain)], self.labels(chain)) for chain in chains]

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
        stacks = Stacks(self.bottom, len(plan.labels), plan.buffers)
        buffer = self.buffer(plan)
        given = self.push.of_first(buffer), self.decide.of_second(buffer)
        decided: list[Tensor] = []
        for shifts in plan.actions:
            if decided:
                decided[-1][: len(shifts), 0].tolist()  # waits: only now is known what to do
            decided.append(self.step(stacks, stacks.step(shifts), *given))
        scores = self.classifier(torch.cat(decided))
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def buffer(self, plan: Plan) -> Tensor:
        """States of the empty buffer, then of all words by place, read from the last (1 + n, h)."""
        order = plan.along.against
        x = self.of_word(self.embedding(order.arrange(plan.words)))
        states = torch.split(x, plan.along.sizes)
        before: Tensor = self.end.expand(len(states[0]), -1)
        for own in states:
            own += self.of_behind(before[: len(own)])
            before = tanh(own, own)
        return torch.cat([self.end[None], order.restore(x)])

    def step(self, stacks: Stacks, rows: Rows, to_push: Tensor, to_decide: Tensor) -> Tensor:
        """Push a state of each sentence; what its next decision is made from (n, h)."""
        x = to_push.index_select(0, rows.pushed)
        if len(rows.reduced):
            pairs = stacks.states.index_select(0, rows.pairs).view(len(rows.reduced), -1)
            composed = self.compose(pairs)
            x.index_copy_(0, rows.reduced, self.push.of_first(tanh(composed, composed)))
        x += self.push.of_second(stacks.states.index_select(0, rows.below))
        t = self.decide.of_first(stacks.push(x)).add_(to_decide.index_select(0, rows.first))
        return tanh(t, t)

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Sentence by sentence."""
        ordered: NDArray[Any] = outputs[plan.rows.cpu().numpy()]
        return ordered
