"""BiRNN in PyTorch, sentence by sentence (Recursive) and side by side (Levels).

Its cell's sigmoid is none of nn.RNN's, so that both run step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from harness.values.instances import Chain
from systems.on_torch.models.var_lstm import Plan
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.rows import columns
from systems.on_torch.parts.sentences import ReadChains, SideBySide, joined, lengths_of, read_chains
from systems.on_torch.parts.untrained import UntrainedParameters


class Recursive(PlainParameters):
    """One sentence at a time, word by word in both directions."""

    def prepare(self, chains: Sequence[Chain]) -> ReadChains:
        """Tensors of words and labels."""
        return read_chains(chains, self.embedding.weight.device)

    def forward(self, batch: ReadChains) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all words."""
        losses, outputs = [], []
        for x, chain in batch.with_vectors(self.embedding(batch.words)):
            there, back = self.states(x, "forward"), self.states(x.flip(0), "backward").flip(0)
            both = torch.cat([there, back], dim=1)
            outputs.append(torch.relu(torch.addmm(self["b_token"], both, self["W_token"])))
            losses.append(functional.cross_entropy(outputs[-1], chain.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def states(self, x: Tensor, direction: str) -> Tensor:
        """h (n, h) along one sentence."""
        U = self[f"U_{direction}"]
        inputs = torch.addmm(self[f"b_{direction}"], x, self[f"W_{direction}"])
        first, *others = torch.split(inputs, 1)
        states = [torch.sigmoid(first)]
        for own in others:
            states.append(torch.sigmoid(torch.addmm(own, states[-1], U)))
        return torch.cat(states)


class Levels(SideBySide, UntrainedParameters):
    """All sentences side by side, the longest first: a step is one of all that still go on."""

    def plan(self, chains: Sequence[Chain], device: torch.device) -> Plan:
        """Words by place."""
        words, labels = joined(device, [c.words for c in chains], [c.labels for c in chains])
        return Plan(words, labels, columns(lengths_of(chains), device))

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all words."""
        x = self.embedding(plan.words)
        both = [self.states(x, plan, "forward"), self.states(x, plan, "backward")]
        scores = self.by("W_token", "b_token")(torch.cat(both, dim=1)).relu_()
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def states(self, x: Tensor, plan: Plan, direction: str) -> Tensor:
        """h (n, h) by place, of inputs x by place."""
        order = plan.along.along if direction == "forward" else plan.along.against
        inputs = self.by(f"W_{direction}", f"b_{direction}")(order.arrange(x))
        states, add_product = (
            torch.split(inputs, plan.along.sizes),
            self.by(f"U_{direction}").add_to,
        )
        states[0].sigmoid_()
        for before, own in pairwise(states):
            add_product(own, before[: len(own)]).sigmoid_()
        found: Tensor = order.restore(inputs)
        return found


EAGER = {"birnn": Recursive}
LEVELS = {"birnn": Levels}
