"""LSTM encoder-decoder in PyTorch, a pair at a time (Recursive) or side by side (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.values.instances import SentencePair
from systems.on_torch.parts.decoder import DecoderInputs, DecoderWeights, decode
from systems.on_torch.parts.lstm import freeze_second_bias
from systems.on_torch.parts.output_layer import LateOutputs
from systems.on_torch.parts.pairs import PairNetwork, PairPlan, plan_pairs
from systems.on_torch.parts.recurrences import Columnwise
from systems.on_torch.parts.rows import Columns, columns
from systems.on_torch.parts.sentences import SideBySide


class _Seq2Seq(PairNetwork):
    """Parameters of harness.models.seq2seq."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "whole")
        h = model.sizes.hidden_size
        self.decoder = nn.LSTMCell(h, h)
        freeze_second_bias(self.decoder)
        self.SHARED |= {
            "W_target": "decoder.weight_ih",
            "U_target": "decoder.weight_hh",
            "b_target": "decoder.bias_ih",
        }


class Recursive(_Seq2Seq):
    """One pair at a time: nn.LSTM reads, nn.LSTMCell writes a word a call, as written first."""

    def prepare(self, pairs: Sequence[SentencePair]) -> list[tuple[Tensor, Tensor]]:
        """Tensors of both sentences."""
        return self.tensors(pairs)

    def forward(self, pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all predicted words."""
        losses, outputs = [], []
        for source, target in pairs:
            state = self.behind(source)
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

    read, labels (m,): words that decoders read and predict, by row of decoders. swap (k,): of every
    decoder's column that of its encoder.
    """

    pairs: PairPlan
    read: Tensor
    labels: Tensor
    swap: Tensor
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
        found = plan_pairs(pairs, device)
        decoders = columns(found.n_steps, device)
        places, swap = decoders.along.places, found.encoders.ranks[decoders.order]
        return Plan(found, found.read[places], found.labels[places], swap, decoders)

    def forward(self, plan: Plan) -> tuple[Tensor, LateOutputs]:
        """Summed loss, logits of all predicted words in the decoders' rows."""
        state = torch.cat(self.encoded(plan.pairs, self.steps), dim=1)
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


EAGER = {"seq2seq": Recursive}
LEVELS = {"seq2seq": Levels}
