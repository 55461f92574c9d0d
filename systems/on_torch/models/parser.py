"""Dependency parser in PyTorch, a sentence at a time (Recursive) or side by side (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.models.parser import Parser
from harness.values.parsed import ParsedSentence
from systems.on_torch.parts.decisions import DecisionInputs, DecisionWeights, decide
from systems.on_torch.parts.lstm import freeze_second_bias, lstm, shared_names
from systems.on_torch.parts.output_layer import LateOutputs, OutputLayer
from systems.on_torch.parts.recurrences import Padded, Recurrence
from systems.on_torch.parts.rows import columns, to_device
from systems.on_torch.parts.sentences import SideBySide, tensor


class _Parser(nn.Module):
    """Parameters of harness.models.parser, all but the LSTMs'."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        sizes, options = model.sizes, model.options
        h, mlp = sizes.hidden_size, options["mlp_size"]
        self.h_each = h // 2
        self.n_inputs = sizes.embedding_size + options["tag_size"]
        self.embedding = nn.Embedding(sizes.of("words"), sizes.embedding_size, sparse=True)
        self.tags = nn.Embedding(sizes.of("tags"), options["tag_size"])
        self.missing = nn.Parameter(torch.zeros(h))
        self.mlp = nn.Linear(8 * h, mlp)
        self.output = OutputLayer(mlp, 1 + 2 * sizes.of("relations"), bias=True, way="whole")
        self.SHARED = {
            "embedding": "embedding.weight",
            "tags": "tags.weight",
            "missing": "missing",
            "W_mlp": "mlp.weight",
            "b_mlp": "mlp.bias",
            "W_out": "output.weight",
            "b_out": "output.bias",
        }
        assert isinstance(model, Parser)
        self.scores_of = model.scores_of

    def read(self, words: Tensor, tags: Tensor) -> Tensor:
        """Vectors of words and of their parts of speech, side by side."""
        return torch.cat([self.embedding(words), self.tags(tags)], dim=1)

    def labels_of(self, sentence: ParsedSentence) -> NDArray[np.int32]:
        """Which score is that of each transition."""
        return self.scores_of(sentence.kinds, sentence.arcs)


class Sentence(NamedTuple):
    """One sentence; features and labels are those of its transitions."""

    words: Tensor
    tags: Tensor
    features: Tensor
    labels: Tensor


class Recursive(_Parser):
    """One sentence at a time: nn.LSTM in both directions, then a transition after the other."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.bilstm = nn.LSTM(self.n_inputs, self.h_each, num_layers=2, bidirectional=True)
        freeze_second_bias(self.bilstm)
        self.SHARED |= shared_names("bilstm", ["_forward", "_forward_2"])
        self.SHARED |= shared_names("bilstm", ["_backward", "_backward_2"], "_reverse")

    def prepare(self, sentences: Sequence[ParsedSentence]) -> list[Sentence]:
        """Tensors on the device."""
        device = self.missing.device
        columns = ((s.words, s.tags, s.features, self.labels_of(s)) for s in sentences)
        return [Sentence(*(tensor(array, device) for array in four)) for four in columns]

    def forward(self, sentences: list[Sentence]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all transitions."""
        losses, outputs = [], []
        for sentence in sentences:
            vectors, _ = self.bilstm(self.read(sentence.words, sentence.tags))
            vectors = torch.cat([vectors, torch.tanh(self.missing)[None]])  # row -1
            for looked_at, label in zip(sentence.features, sentence.labels, strict=True):
                hidden = torch.tanh(self.mlp(vectors[looked_at].view(-1)))
                outputs.append(self.output(hidden))
                losses.append(functional.cross_entropy(outputs[-1], label, reduction="sum"))
        return torch.stack(losses).sum(), torch.stack(outputs)


class Plan(NamedTuple):
    """Words and tags by place, how LSTMs run along them, and all decisions, step by step.

    order (n,): where each decision stands when they follow sentence by sentence.
    """

    words: Tensor
    tags: Tensor
    along: Any
    decisions: DecisionInputs
    order: Tensor


class Levels(SideBySide, _Parser):
    """All sentences side by side: BiLSTMs by nn.LSTM, then a decision of every parser a step.

    Measured (training, hidden 256, batch 64, lengths of UD English EWT, processor time of one core
    of a busy machine, ms a mini-batch): BiLSTMs Padded in 4 buckets 137, in 2 153, Columnwise 138,
    Packed 216.
    """

    def __init__(self, model: Model, recurrence: Recurrence | None = None) -> None:
        super().__init__(model)
        self.recurrence = recurrence or Padded(n_buckets=4)
        h, each = 2 * self.h_each, self.h_each
        self.forwards, self.backwards = lstm(self.n_inputs, each), lstm(self.n_inputs, each)
        self.forwards_2, self.backwards_2 = lstm(h, each), lstm(h, each)
        for name in ("forward", "backward"):
            self.SHARED |= shared_names(f"{name}s", [f"_{name}"])
            self.SHARED |= shared_names(f"{name}s_2", [f"_{name}_2"])

    def plan(self, sentences: Sequence[ParsedSentence], device: torch.device) -> Plan:
        """Tokens by place; decisions in columns, the longest sentence first."""
        lengths = np.array([s.n_tokens for s in sentences], dtype=np.int64)
        n_steps = np.array([s.n_transitions for s in sentences], dtype=np.int64)
        offsets = np.repeat(np.cumsum(lengths) - lengths, n_steps)
        features = np.concatenate([s.features for s in sentences])
        n_tokens, n_slots = int(lengths.sum()), features.shape[1]
        looked_at = np.where(features < 0, n_tokens, features + offsets[:, None])  # missing: last
        words, tags, looked, labels = to_device(
            device,
            np.concatenate([s.words for s in sentences]),
            np.concatenate([s.tags for s in sentences]),
            looked_at.ravel(),
            np.concatenate([self.labels_of(s) for s in sentences]),
        )
        steps = columns(n_steps, device)
        places = steps.along.places
        rows = looked.view(-1, n_slots)[places]
        decisions = DecisionInputs(rows, labels[places], steps.sizes)
        along = self.recurrence.plan(lengths, device)
        return Plan(words, tags, along, decisions, steps.along.rows)

    def forward(self, plan: Plan) -> tuple[Tensor, LateOutputs]:
        """Summed loss, scores of all transitions in the order of steps."""
        x = self.read(plan.words, plan.tags)
        x = self.both(self.forwards, self.backwards, x, plan)
        x = self.both(self.forwards_2, self.backwards_2, x, plan)
        vectors = torch.cat([x, torch.tanh(self.missing)[None]])
        out = self.output
        assert out.bias is not None
        weights = DecisionWeights(self.mlp.weight, self.mlp.bias, out.weight, out.bias)
        loss, hidden = decide(vectors, weights, plan.decisions)
        return loss, out.late(hidden)

    def both(self, there: nn.LSTM, back: nn.LSTM, x: Tensor, plan: Plan) -> Tensor:
        """h of both directions side by side (n, h)."""
        run = self.recurrence.run
        h = [run(there, x, plan.along, against=False), run(back, x, plan.along, against=True)]
        return torch.cat(h, dim=1)

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Sentence by sentence."""
        ordered: NDArray[Any] = outputs[plan.order.cpu().numpy()]
        return ordered


EAGER = {"parser": Recursive}
LEVELS = {"parser": Levels}
