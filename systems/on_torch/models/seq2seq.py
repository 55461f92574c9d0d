"""LSTM encoder-decoder in PyTorch, a pair at a time (Recursive) or side by side (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.values.instances import SentencePair
from systems.on_torch.parts.decoder import DecoderInputs, DecoderWeights, decode
from systems.on_torch.parts.lstm import freeze_second_bias, shared_names
from systems.on_torch.parts.output_layer import LateOutputs, OutputLayer
from systems.on_torch.parts.products import linear
from systems.on_torch.parts.recurrences import Columnwise, expanded
from systems.on_torch.parts.rows import Columns, columns, to_device
from systems.on_torch.parts.sentences import SideBySide, tensor
from systems.on_torch.parts.taggers import StartedLSTM


class _Seq2Seq(nn.Module):
    """Parameters of harness.models.seq2seq."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        sizes = model.sizes
        h, e, words = sizes.hidden_size, sizes.embedding_size, sizes.of("target_words")
        self.source_embedding = nn.Embedding(sizes.of("source_words"), e, sparse=True)
        self.target_embedding = nn.Embedding(words, e, sparse=True)
        self.read_source, self.read_target = nn.Linear(e, h), nn.Linear(e, h)
        self.encoder = StartedLSTM(h, h)
        self.decoder = nn.LSTMCell(h, h)
        freeze_second_bias(self.decoder)
        self.output = OutputLayer(h, words, bias=False, way="whole")
        starts = {f"{s}_0": f"encoder.{s}_0.0" for s in ("h", "c")}
        self.SHARED = {
            **starts,
            "source_embedding": "source_embedding.weight",
            "target_embedding": "target_embedding.weight",
            **shared_names("encoder.lstm", ["_source"]),
            "W_target": "decoder.weight_ih",
            "U_target": "decoder.weight_hh",
            "b_target": "decoder.bias_ih",
            "W_out": "output.weight",
        }
        for side in ("source", "target"):
            self.SHARED |= {f"E_{side}": f"read_{side}.weight", f"b_E_{side}": f"read_{side}.bias"}


class Recursive(_Seq2Seq):
    """One pair at a time: nn.LSTM reads, nn.LSTMCell writes a word a call, as written first."""

    def prepare(self, pairs: Sequence[SentencePair]) -> list[tuple[Tensor, Tensor]]:
        """Tensors of both sentences."""
        device = self.output.weight.device
        return [(tensor(pair.source, device), tensor(pair.target, device)) for pair in pairs]

    def forward(self, pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all predicted words."""
        losses, outputs = [], []
        for source, target in pairs:
            x = torch.tanh(self.read_source(self.source_embedding(source)))
            _, state = self.encoder.lstm(x, self.encoder.start)
            for word, label in zip(
                torch.split(target[:-1], 1), torch.split(target[1:], 1), strict=True
            ):
                x = torch.tanh(self.read_target(self.target_embedding(word)))
                state = self.decoder(x, state)
                outputs.append(self.output(state[0]))
                losses.append(functional.cross_entropy(outputs[-1], label, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)


class Plan(NamedTuple):
    """A mini-batch of pairs.

    source (n,): words by row of encoders. read, labels (m,): words that decoders read and predict,
    by row of decoders. swap (k,): of every decoder's column that of its encoder.
    """

    source: Tensor
    read: Tensor
    labels: Tensor
    swap: Tensor
    encoders: Columns
    decoders: Columns


class Levels(SideBySide, _Seq2Seq):
    """All pairs side by side, the longest first; the decoders step by step, outputs included.

    The encoder, too, goes by hand (Columnwise): the decoder needs its last c, which a padded
    nn.LSTM does not give, and a packed one is slower on a CPU. Training, hidden 256, batch 64,
    lengths of IWSLT'15 and 7 700 target words, processor time of one core of a busy machine: 243
    pairs/s, with compiled steps 219, Recursive 15.
    """

    def __init__(self, model: Model, recurrence: Columnwise | None = None) -> None:
        super().__init__(model)
        self.steps = recurrence or Columnwise()

    def plan(self, pairs: Sequence[SentencePair], device: torch.device) -> Plan:
        """Rows of encoders and of decoders, whose order differs."""
        n_source = np.array([len(pair.source) for pair in pairs], dtype=np.int64)
        n_steps = np.array([pair.n_steps for pair in pairs], dtype=np.int64)
        encoders, decoders = columns(n_source, device), columns(n_steps, device)
        source, read, labels = to_device(
            device,
            np.concatenate([pair.source for pair in pairs]),
            np.concatenate([pair.target[:-1] for pair in pairs]),
            np.concatenate([pair.target[1:] for pair in pairs]),
        )
        places = decoders.along.places
        return Plan(
            source[encoders.along.places],
            read[places],
            labels[places],
            encoders.ranks[decoders.order],
            encoders,
            decoders,
        )

    def forward(self, plan: Plan) -> tuple[Tensor, LateOutputs]:
        """Summed loss, logits of all predicted words in the decoders' rows."""
        read = self.read_source
        x = torch.tanh(linear(self.source_embedding(plan.source), read.weight, read.bias))
        lstm, columns = self.encoder.lstm, plan.encoders
        start = expanded(self.encoder.start, 0, len(columns.order))
        h, c = self.steps.layer(lstm, 0, x, start, columns)
        state = torch.cat([h.index_select(0, columns.last), c], dim=1)
        weights = DecoderWeights(
            self.target_embedding.weight,
            self.read_target.weight,
            self.read_target.bias,
            self.decoder.weight_ih,
            self.decoder.weight_hh,
            self.decoder.bias_ih,
            self.output.weight,
        )
        inputs = DecoderInputs(plan.read, plan.labels, plan.decoders, self.steps.kind)
        loss, hidden = decode(state.index_select(0, plan.swap), weights, inputs)
        return loss, self.output.late(hidden)

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Pair by pair."""
        ordered: NDArray[Any] = outputs[plan.decoders.along.rows.cpu().numpy()]
        return ordered
