"""BiLSTM tagger in PyTorch, sentence by sentence (Recursive) and side by side (Levels)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.models.parts.lstm import layer_suffix
from harness.values.instances import Chain
from systems.on_torch.models.var_lstm import Plan
from systems.on_torch.parts.output_layer import LateOutputs, LossWay
from systems.on_torch.parts.recurrences import Columnwise, Recurrence
from systems.on_torch.parts.sentences import ReadChains, SideBySide, joined, lengths_of, read_chains
from systems.on_torch.parts.taggers import StartedLSTM, TagLayer


class _BiLSTM(nn.Module):
    """Parameters of harness.models.bilstm: a stack of layers for each direction."""

    def __init__(self, model: Model, way: LossWay) -> None:
        super().__init__()
        sizes, layers = model.sizes, model.options["layers"]
        h, e = sizes.hidden_size, sizes.embedding_size
        suffixes = [layer_suffix(k) for k in range(1, layers + 1)]
        self.embedding = nn.Embedding(sizes.of("words"), e, sparse=True)
        self.forwards = StartedLSTM(e, h, layers)
        self.backwards = StartedLSTM(e, h, layers)
        self.tag = TagLayer(h, model.options["mlp_size"] or h, sizes.of("classes"), way)
        self.SHARED = {
            "embedding": "embedding.weight",
            **self.forwards.shared_names("forwards", [f"_forward{k}" for k in suffixes]),
            **self.backwards.shared_names("backwards", [f"_backward{k}" for k in suffixes]),
            **self.tag.shared_names("tag"),
        }


class Recursive(_BiLSTM):
    """One sentence at a time through an nn.LSTM each way, as a first version would be written."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "whole")

    def prepare(self, chains: Sequence[Chain]) -> ReadChains:
        """Tensors of words and labels."""
        return read_chains(chains, self.embedding.weight.device)

    def forward(self, batch: ReadChains) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all words."""
        losses, outputs = [], []
        for x, chain in batch.with_vectors(self.embedding(batch.words)):
            tags = self.tag(self.forwards(x), self.backwards(x.flip(0)).flip(0))
            outputs.append(self.tag.output(tags))
            losses.append(functional.cross_entropy(outputs[-1], chain.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)


class Levels(SideBySide, _BiLSTM):
    """All sentences side by side; tags of all words at once."""

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
        x, run = self.embedding(plan.words), self.recurrence.run
        there = run(self.forwards.lstm, x, plan.along, self.forwards.start, against=False)
        back = run(self.backwards.lstm, x, plan.along, self.backwards.start, against=True)
        tags = self.tag(there, back)
        return self.tag.output.loss(tags, plan.labels), self.tag.output.late(tags)


EAGER = {"bilstm": Recursive}
LEVELS = {"bilstm": Levels}
