"""Var-LSTM language model in PyTorch, a sentence at a time (Recursive) or side by side (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.models.parts.lstm import layer_suffix
from harness.values.instances import Chain
from systems.on_torch.parts.lstm import lstm, shared_names
from systems.on_torch.parts.output_layer import LateOutputs, LossWay, OutputLayer
from systems.on_torch.parts.recurrences import Columnwise, Recurrence
from systems.on_torch.parts.sentences import ReadChains, SideBySide, joined, lengths_of, read_chains


class _VarLSTM(nn.Module):
    """Parameters of harness.models.var_lstm."""

    def __init__(self, model: Model, way: LossWay) -> None:
        super().__init__()
        sizes, layers = model.sizes, model.options["layers"]
        h, words = sizes.hidden_size, sizes.of("words")
        self.embedding = nn.Embedding(words, sizes.embedding_size, sparse=True)
        self.lstm = lstm(sizes.embedding_size, h, layers)
        self.output = OutputLayer(h, words, bias=True, way=way)
        self.SHARED = {
            "embedding": "embedding.weight",
            **shared_names("lstm", [layer_suffix(k) for k in range(1, layers + 1)]),
            "W_out": "output.weight",
            "b_out": "output.bias",
        }


class Recursive(_VarLSTM):
    """One sentence at a time through nn.LSTM, as a first version would be written."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "whole")

    def prepare(self, chains: Sequence[Chain]) -> ReadChains:
        """Tensors of words and labels."""
        return read_chains(chains, self.embedding.weight.device)

    def forward(self, batch: ReadChains) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all words."""
        losses, outputs = [], []
        for x, chain in batch.with_vectors(self.embedding(batch.words)):
            h, _ = self.lstm(x)
            outputs.append(self.output(h))
            losses.append(functional.cross_entropy(outputs[-1], chain.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)


class Plan(NamedTuple):
    """All words and labels (n,) and how LSTMs run along them."""

    words: Tensor
    labels: Tensor
    along: Any


class Levels(SideBySide, _VarLSTM):
    """All sentences side by side; the output layer once, over the words and no padding."""

    def __init__(
        self,
        model: Model,
        recurrence: Recurrence = Columnwise(),  # noqa: B008 - has no state
        way: LossWay = "in_place",
    ) -> None:
        super().__init__(model, way)
        self.recurrence = recurrence

    def plan(self, chains: Sequence[Chain], device: torch.device) -> Plan:
        """Words by place."""
        words, labels = joined(device, [c.words for c in chains], [c.labels for c in chains])
        return Plan(words, labels, self.recurrence.plan(lengths_of(chains), device))

    def forward(self, plan: Plan) -> tuple[Tensor, LateOutputs]:
        """Summed loss, logits of all words."""
        h = self.recurrence.run(self.lstm, self.embedding(plan.words), plan.along, against=False)
        return self.output.loss(h, plan.labels), self.output.late(h)


EAGER = {"var_lstm": Recursive}
LEVELS = {"var_lstm": Levels}
