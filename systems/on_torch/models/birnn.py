"""BiRNN in PyTorch, sentence by sentence (Recursive) and side by side (Levels).

Its cell's sigmoid is none of nn.RNN's, so that both run step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from harness.values.instances import Chain
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.rows import Columns, columns
from systems.on_torch.parts.sentences import ReadChains, SideBySide, joined, lengths_of, read_chains


class _BiRNN(PlainParameters):
    def of_words(self, x: Tensor, direction: str) -> Tensor:
        """W x + b of all words (n, h)."""
        return torch.addmm(self[f"b_{direction}"], x, self[f"W_{direction}"])

    def tokens(self, there: Tensor, back: Tensor) -> Tensor:
        """Scores of all words, from the states of both directions."""
        both = torch.cat([there, back], dim=1)
        return torch.relu(torch.addmm(self["b_token"], both, self["W_token"]))


class Recursive(_BiRNN):
    """One sentence at a time."""

    def prepare(self, chains: Sequence[Chain]) -> ReadChains:
        """Tensors of words and labels."""
        return read_chains(chains, self.embedding.weight.device)

    def forward(self, batch: ReadChains) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all words."""
        losses, outputs = [], []
        for x, chain in batch.with_vectors(self.embedding(batch.words)):
            there, back = self._along(x, "forward"), self._along(x.flip(0), "backward").flip(0)
            outputs.append(self.tokens(there, back))
            losses.append(functional.cross_entropy(outputs[-1], chain.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def _along(self, x: Tensor, direction: str) -> Tensor:
        U, rows = self[f"U_{direction}"], torch.split(self.of_words(x, direction), 1)
        states = [torch.sigmoid(rows[0])]
        for row in rows[1:]:
            states.append(torch.sigmoid(torch.addmm(row, states[-1], U)))
        return torch.cat(states)


class Plan(NamedTuple):
    """Words and labels by place, and how states run along them."""

    words: Tensor
    labels: Tensor
    along: Columns


class Levels(SideBySide, _BiRNN):
    """Step by step over the sentences that still go on, the longest first; tokens at once."""

    def plan(self, chains: Sequence[Chain], device: torch.device) -> Plan:
        """Words by place."""
        words, labels = joined(device, [c.words for c in chains], [c.labels for c in chains])
        return Plan(words, labels, columns(lengths_of(chains), device))

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all words."""
        x = self.embedding(plan.words)
        there = self._run(x, plan.along, "forward")
        back = self._run(x, plan.along, "backward")
        scores = self.tokens(there, back)
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def _run(self, x: Tensor, plan: Columns, direction: str) -> Tensor:
        order = plan.along if direction == "forward" else plan.against
        rows, U = order.arrange(self.of_words(x, direction)), self[f"U_{direction}"]
        states: list[Tensor] = []
        for row in torch.split(rows, plan.sizes):
            if states:
                row = torch.addmm(row, states[-1][: len(row)], U)
            states.append(torch.sigmoid(row))
        return order.restore(torch.cat(states))
