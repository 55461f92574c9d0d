"""BiRNN in PyTorch, sentence by sentence (Recursive) and side by side (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from harness.values.instances import Chain
from systems.on_torch.models.var_lstm import Plan
from systems.on_torch.parts.rows import Order, columns
from systems.on_torch.parts.sentences import ReadChains, SideBySide, joined, lengths_of, read_chains
from systems.on_torch.parts.untrained import UntrainedLinear


class _Direction(nn.Module):
    """h' = s(b + W x + U h); PyTorch's own RNN has no logistic function."""

    def __init__(self, n_inputs: int, h: int, kind: type[nn.Linear]) -> None:
        super().__init__()
        self.W, self.U = kind(n_inputs, h), kind(h, h, bias=False)


class _BiRNN(nn.Module):
    """Parameters of harness.models.birnn."""

    def __init__(self, model: Model, kind: type[nn.Linear]) -> None:
        super().__init__()
        sizes = model.sizes
        h, e = sizes.hidden_size, sizes.embedding_size
        self.embedding = nn.Embedding(sizes.of("words"), e)
        self.forwards, self.backwards = _Direction(e, h, kind), _Direction(e, h, kind)
        self.token = kind(2 * h, sizes.of("classes"))
        self.SHARED = {
            "embedding": "embedding.weight",
            "W_token": "token.weight",
            "b_token": "token.bias",
        }
        for name in ("forward", "backward"):
            self.SHARED[f"W_{name}"] = f"{name}s.W.weight"
            self.SHARED[f"U_{name}"] = f"{name}s.U.weight"
            self.SHARED[f"b_{name}"] = f"{name}s.W.bias"


class Recursive(_BiRNN):
    """One sentence at a time, word by word in both directions."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, nn.Linear)

    def prepare(self, chains: Sequence[Chain]) -> ReadChains:
        """Tensors of words and labels."""
        return read_chains(chains, self.embedding.weight.device)

    def forward(self, batch: ReadChains) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all words."""
        losses, outputs = [], []
        for x, chain in batch.with_vectors(self.embedding(batch.words)):
            both = [self.states(self.forwards, x), self.states(self.backwards, x.flip(0)).flip(0)]
            outputs.append(torch.relu(self.token(torch.cat(both, dim=1))))
            losses.append(functional.cross_entropy(outputs[-1], chain.labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def states(self, direction: _Direction, x: Tensor) -> Tensor:
        """h (n, h) along one sentence."""
        inputs = direction.W(x)
        states = [torch.sigmoid(inputs[0])]
        for own in inputs[1:]:
            states.append(torch.sigmoid(own + direction.U(states[-1])))
        return torch.stack(states)


class Levels(SideBySide, _BiRNN):
    """All sentences side by side, the longest first: a step is one of all that still go on."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, UntrainedLinear)

    def plan(self, chains: Sequence[Chain], device: torch.device) -> Plan:
        """Words by place."""
        words, labels = joined(device, [c.words for c in chains], [c.labels for c in chains])
        return Plan(words, labels, columns(lengths_of(chains), device))

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all words."""
        x, along = self.embedding(plan.words), plan.along
        both = [
            self.states(self.forwards, x, along.along, along.sizes),
            self.states(self.backwards, x, along.against, along.sizes),
        ]
        scores = self.token(torch.cat(both, dim=1)).relu_()
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def states(
        self, direction: _Direction, x: Tensor, order: Order, sizes: Sequence[int]
    ) -> Tensor:
        """h (n, h) by place, of inputs x by place."""
        states = torch.split(direction.W(order.arrange(x)), list(sizes))
        states[0].sigmoid_()
        for before, own in pairwise(states):
            own.add_(direction.U(before[: len(own)])).sigmoid_()
        return order.restore(torch.cat(states))
