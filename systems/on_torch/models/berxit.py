"""Berxit in PyTorch: one sentence at a time (Recursive), and all that go on at once (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from harness.models.berxit import Berxit
from harness.values.instances import Chain
from harness.vertex.operators import LAYER_NORM_EPSILON
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.plans.programs import Once


class Sentence(NamedTuple):
    """Words of all tokens, the label, and behind which layer a value will say that it is enough."""

    words: list[int]
    label: int
    n_layers: int


def listed(model: Berxit, chain: Chain) -> Sentence:
    """Python numbers of a sentence."""
    return Sentence(model.words(chain), int(chain.labels[0]), model.n_layers(chain))


class _Encoder(PlainParameters):
    """The layer, of sentences (n, tokens, h), by what PyTorch has for it."""

    def __init__(self, model: Berxit) -> None:
        super().__init__(model)
        self.read, self.n_heads = Once(partial(listed, model)), model.n_heads
        self.layers = model.layers
        self._side_by_side: tuple[Tensor, Tensor] | None = None

    def prepare(self, chains: Sequence[Chain]) -> list[Sentence]:
        """Python numbers."""
        return [self.read(chain) for chain in chains]

    def embedded(self, sentences: Sequence[Sentence]) -> Tensor:
        """Tokens (n, tokens, h)."""
        words = torch.tensor([one.words for one in sentences], device=self.embedding.weight.device)
        return self.norm(self.embedding(words) + self["places"], "gain_token", "b_token")

    def layer(self, x: Tensor) -> Tensor:
        """One layer."""
        heads = functional.linear(self.attention(x), self["W_heads"].t(), self["b_heads"])
        a = self.norm(x + heads, "gain_heads", "b_heads_norm")
        up = functional.linear(a, self["W_up"].t(), self["b_up"])
        down = functional.linear(
            functional.gelu(up, approximate="tanh"), self["W_down"].t(), self["b_down"]
        )
        return self.norm(a + down, "gain_layer", "b_layer")

    def attention(self, x: Tensor) -> Tensor:
        """All heads, side by side."""
        n, n_tokens, h = x.shape
        weight, bias = self._q_k_v()
        parts = functional.linear(x, weight, bias).view(n, n_tokens, 3, self.n_heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(n, n_tokens, h)

    def _q_k_v(self) -> tuple[Tensor, Tensor]:
        """Weights of all three as one product's; they are never trained."""
        if self._side_by_side is None:
            weight = torch.cat([self[f"W_{part}"] for part in "qkv"], dim=1).t().contiguous()
            self._side_by_side = weight, torch.cat([self[f"b_{part}"] for part in "qkv"])
        return self._side_by_side

    def norm(self, x: Tensor, gain: str, bias: str) -> Tensor:
        """Layer normalisation."""
        return functional.layer_norm(
            x, x.shape[-1:], self[gain], self[bias], eps=LAYER_NORM_EPSILON
        )

    def exit(self, x: Tensor) -> Tensor:
        """What the classifier reads (n, h)."""
        return torch.tanh(torch.addmm(self["b_exit"], x[:, 0], self["W_exit"]))

    def classified(self, exits: Tensor, labels: list[int]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores."""
        scores = exits @ self["W_out"]
        right = torch.tensor(labels, device=scores.device)
        return functional.cross_entropy(scores, right, reduction="sum"), scores


class Recursive(_Encoder):
    """One sentence at a time; the exit behind every layer is read before it goes on."""

    def forward(self, batch: list[Sentence]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all sentences."""
        losses, outputs = [], []
        for sentence in batch:
            x = self.embedded([sentence])
            for layer in range(1, sentence.n_layers + 1):
                x = self.layer(x)
                leaving = self.exit(x)
                if layer < self.layers:
                    float(leaving[0, 0])  # waits: only now is known whether it goes on
            loss, scores = self.classified(leaving, [sentence.label])
            losses.append(loss)
            outputs.append(scores)
        return torch.stack(losses).sum(), torch.cat(outputs)


class Plan(NamedTuple):
    """Sentences, those that go furthest first; places (n,): where each of them stood before."""

    sentences: list[Sentence]
    places: NDArray[np.int64]


class Levels(_Encoder):
    """A layer of all sentences that go on; those that leave are the last of them."""

    def plan(self, batch: Sequence[Sentence], device: torch.device) -> Plan:
        """Order them, so that those that go on are a slice."""
        places = np.argsort([-one.n_layers for one in batch], kind="stable")
        return Plan([batch[k] for k in places], places)

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores in the plan's order."""
        going = plan.sentences
        x, exits = self.embedded(going), []
        for layer in range(1, going[0].n_layers + 1):
            x = self.layer(x)
            leaving = self.exit(x)
            if layer < self.layers:
                leaving[:, 0].tolist()  # waits: only now is known who goes on
            n = sum(one.n_layers > layer for one in going)
            exits.append(leaving[n:])
            x, going = x[:n], going[:n]
        labels = [one.label for one in plan.sentences]
        return self.classified(torch.cat(exits[::-1]), labels)

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Sentence by sentence."""
        ordered = np.empty_like(outputs)
        ordered[plan.places] = outputs
        return ordered


EAGER = {"berxit": Recursive}
LEVELS = {"berxit": Levels}
