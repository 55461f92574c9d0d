"""StackRNN in PyTorch, one sentence at a time: each step waits for the scores of the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from harness.contracts.model import Model
from harness.models.stack_rnn import StackRNN
from harness.values.instances import Chain, int_array
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.sentences import tensor


class Sentence(NamedTuple):
    """One sentence: words; the loss's actions; whether each step but the last shifts."""

    words: Tensor
    labels: Tensor
    shifts: list[bool]


class Recursive(PlainParameters):
    """Rows (1, h) for states."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        assert isinstance(model, StackRNN)
        self.model = model

    def prepare(self, sentences: Sequence[Chain]) -> list[Sentence]:
        """Tensors on the device, and the actions that will be taken."""
        device, model = self.embedding.weight.device, self.model
        return [
            Sentence(
                tensor(sentence.words, device),
                tensor(int_array(model.labels(sentence)), device),
                model.actions(sentence),
            )
            for sentence in sentences
        ]

    def forward(self, sentences: list[Sentence]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all steps."""
        losses, outputs = [], []
        for sentence in sentences:
            scores = torch.cat(self._steps(sentence))
            outputs.append(scores)
            losses.append(functional.cross_entropy(scores, sentence.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def _steps(self, sentence: Sentence) -> list[Tensor]:
        buffer, stack = self._buffer(sentence.words), [self["bottom"][None]]
        stack.append(self._of_two("push", buffer.pop(), stack[-1]))
        scores = [self._scores(stack, buffer)]
        for shifts in sentence.shifts:
            scores[-1].argmax().item()  # what decides is drawn, but it is waited for
            if shifts:
                pushed = buffer.pop()
            else:
                upper = stack.pop()
                pushed = self._of_two("compose", stack.pop(), upper)
            stack.append(self._of_two("push", pushed, stack[-1]))
            scores.append(self._scores(stack, buffer))
        return scores

    def _buffer(self, words: Tensor) -> list[Tensor]:
        x = torch.addmm(self["b_buffer"], self.embedding(words), self["W_buffer"])
        states = [self["end"][None]]
        for row in reversed(torch.split(x, 1)):
            states.append(torch.tanh(torch.addmm(row, states[-1], self["U_buffer"])))
        return states

    def _scores(self, stack: Sequence[Tensor], buffer: Sequence[Tensor]) -> Tensor:
        return self._of_two("decide", stack[-1], buffer[-1]) @ self["W_out"]

    def _of_two(self, name: str, first: Tensor, second: Tensor) -> Tensor:
        both = torch.cat([first, second], dim=1)
        return torch.tanh(torch.addmm(self[f"b_{name}"], both, self[f"W_{name}"]))
