"""The encoder-decoder with all words given, in PyTorch: both LSTMs run along whole sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from harness.contracts.model import Model
from harness.values.instances import SentencePair
from systems.on_torch.parts.lstm import lstm, shared_names
from systems.on_torch.parts.output_layer import LateOutputs, LossWay
from systems.on_torch.parts.pairs import PairNetwork, PairPlan, plan_pairs
from systems.on_torch.parts.recurrences import Columnwise, Recurrence
from systems.on_torch.parts.sentences import SideBySide


class _AtOnce(PairNetwork):
    """Parameters of harness.models.seq2seq_at_once."""

    def __init__(self, model: Model, way: LossWay) -> None:
        super().__init__(model, way)
        h = model.sizes.hidden_size
        self.decoder = lstm(h, h)
        self.SHARED |= shared_names("decoder", ["_target"])


class Recursive(_AtOnce):
    """One pair at a time through two nn.LSTMs, as a first version would be written."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "whole")

    def prepare(self, pairs: Sequence[SentencePair]) -> list[tuple[Tensor, Tensor]]:
        """Tensors of both sentences."""
        return self.tensors(pairs)

    def forward(self, pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all predicted words."""
        losses, outputs = [], []
        for source, target in pairs:
            state = self.behind(source)
            read = torch.tanh(self.read_target(self.target_embedding(target[:-1])))
            h, _ = self.decoder(read, state)
            outputs.append(self.output(h))
            losses.append(functional.cross_entropy(outputs[-1], target[1:], reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)


class Plan(NamedTuple):
    """A mini-batch of pairs, and how decoders run along their words."""

    pairs: PairPlan
    decoders: Any


class Levels(SideBySide, _AtOnce):
    """All pairs side by side; the output layer once, over the words and no padding.

    The encoder goes as the decoder does, but for a padded one, which has no last c to give.
    """

    def __init__(
        self,
        model: Model,
        recurrence: Recurrence = Columnwise(),  # noqa: B008 - has no state
        way: LossWay = "in_place",
    ) -> None:
        super().__init__(model, way)
        self.recurrence = recurrence

    def plan(self, pairs: Sequence[SentencePair], device: torch.device) -> Plan:
        """Words by place."""
        found = plan_pairs(pairs, device)
        return Plan(found, self.recurrence.plan(found.n_steps, device))

    def forward(self, plan: Plan) -> tuple[Tensor, LateOutputs]:
        """Summed loss, logits of all predicted words, pair by pair."""
        ranks = plan.pairs.encoders.ranks
        h_0, c_0 = self.encoded(plan.pairs, self.recurrence)
        start = h_0.index_select(0, ranks)[None], c_0.index_select(0, ranks)[None]
        x = self.vectors(plan.pairs.read, self.target_embedding, self.read_target)
        h = self.recurrence.run(self.decoder, x, plan.decoders, start, against=False)
        return self.output.loss(h, plan.pairs.labels), self.output.late(h)


EAGER = {"seq2seq_at_once": Recursive}
LEVELS = {"seq2seq_at_once": Levels}
