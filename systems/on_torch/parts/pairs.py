"""What both encoder-decoders have: words of two languages, an encoder, and the output layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from harness.contracts.model import Model
from harness.values.instances import SentencePair
from systems.on_torch.parts.lstm import shared_names
from systems.on_torch.parts.output_layer import LossWay, OutputLayer
from systems.on_torch.parts.products import linear
from systems.on_torch.parts.recurrences import Recurrence
from systems.on_torch.parts.rows import Columns, columns, to_device
from systems.on_torch.parts.sentences import tensor
from systems.on_torch.parts.taggers import StartedLSTM
from systems.plans.trees import Ids


class PairPlan(NamedTuple):
    """A mini-batch of pairs.

    source (n,): words by row of encoders. read, labels (m,): words that decoders read and predict,
    by place. n_steps (k,): of every decoder.
    """

    source: Tensor
    read: Tensor
    labels: Tensor
    encoders: Columns
    n_steps: Ids


def plan_pairs(pairs: Sequence[SentencePair], device: torch.device) -> PairPlan:
    """Lay the encoders side by side; decoders are still to be laid out."""
    n_source = np.array([len(pair.source) for pair in pairs], dtype=np.int64)
    n_steps = np.array([pair.n_steps for pair in pairs], dtype=np.int64)
    encoders = columns(n_source, device)
    source, read, labels = to_device(
        device,
        np.concatenate([pair.source for pair in pairs]),
        np.concatenate([pair.target[:-1] for pair in pairs]),
        np.concatenate([pair.target[1:] for pair in pairs]),
    )
    return PairPlan(source[encoders.along.places], read, labels, encoders, n_steps)


class PairNetwork(nn.Module):
    """Parameters of harness.models.seq2seq but the decoder's, which each form adds to SHARED."""

    def __init__(self, model: Model, way: LossWay) -> None:
        super().__init__()
        sizes = model.sizes
        h, e, words = sizes.hidden_size, sizes.embedding_size, sizes.of("target_words")
        self.source_embedding = nn.Embedding(sizes.of("source_words"), e, sparse=True)
        self.target_embedding = nn.Embedding(words, e, sparse=True)
        self.read_source, self.read_target = nn.Linear(e, h), nn.Linear(e, h)
        self.encoder = StartedLSTM(h, h)
        self.output = OutputLayer(h, words, bias=False, way=way)
        starts = {f"{s}_0": f"encoder.{s}_0.0" for s in ("h", "c")}
        self.SHARED = {
            **starts,
            "source_embedding": "source_embedding.weight",
            "target_embedding": "target_embedding.weight",
            **shared_names("encoder.lstm", ["_source"]),
            "W_out": "output.weight",
        }
        for side in ("source", "target"):
            self.SHARED |= {f"E_{side}": f"read_{side}.weight", f"b_E_{side}": f"read_{side}.bias"}

    def tensors(self, pairs: Sequence[SentencePair]) -> list[tuple[Tensor, Tensor]]:
        """Both sentences of every pair, for who goes through them one by one."""
        device = self.output.weight.device
        return [(tensor(pair.source, device), tensor(pair.target, device)) for pair in pairs]

    def behind(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """h and c behind the last word of one sentence (n,)."""
        x = torch.tanh(self.read_source(self.source_embedding(source)))
        state: tuple[Tensor, Tensor] = self.encoder.lstm(x, self.encoder.start)[1]
        return state

    def vectors(self, words: Tensor, table: nn.Embedding, read: nn.Linear) -> Tensor:
        """tanh(E x + b_E) of words (n,), (n, h)."""
        return torch.tanh(linear(table(words), read.weight, read.bias))

    def encoded(self, plan: PairPlan, recurrence: Recurrence) -> tuple[Tensor, Tensor]:
        """h and c behind every source's last word, by encoders' columns (k, h)."""
        x = self.vectors(plan.source, self.source_embedding, self.read_source)
        return recurrence.last(self.encoder.lstm, x, plan.encoders, self.encoder.start)
