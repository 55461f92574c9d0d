"""NestedRNN in PyTorch, one instance at a time (Recursive) and all at once (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from harness.models.nested_rnn import NestedRNN
from harness.values.instances import Chain
from systems.on_torch.parts.nonlinear import tanh
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.rows import columns, to_device
from systems.on_torch.parts.untrained import UntrainedParameters
from systems.plans.programs import Once


class Loops(NamedTuple):
    """One instance: the word that it begins with, its label, and inner steps of each outer one."""

    word: int
    label: int
    n_inner: list[int]


def listed(model: NestedRNN, chain: Chain) -> Loops:
    """Python numbers of an instance, and what will be decided."""
    return Loops(int(chain.words[0]), int(chain.labels[0]), model.loops(chain))


class Recursive(PlainParameters):
    """One instance at a time; every state of the outer loop is read before it goes on."""

    def __init__(self, model: NestedRNN) -> None:
        super().__init__(model)
        self.read = Once(partial(listed, model))

    def prepare(self, chains: Sequence[Chain]) -> list[Loops]:
        """Python numbers."""
        return [self.read(chain) for chain in chains]

    def forward(self, batch: list[Loops]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all steps of outer loops."""
        device, losses, outputs = self.embedding.weight.device, [], []
        U, b = self["U"], self["b"]
        for word, label, loops in batch:
            h = self.embedding(torch.tensor([word], device=device))
            states = []
            for n_inner in loops:
                float(h[0, 0])  # waits: only now is known how often the inner loop runs
                x = h
                for _ in range(n_inner):
                    x = torch.tanh(torch.addmm(b, x, U))
                h = self.outer(x, h)
                states.append(h)
            outputs.append(torch.cat(states) @ self["W_out"])
            right = torch.full((len(loops),), label, device=device)
            losses.append(functional.cross_entropy(outputs[-1], right, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def outer(self, x: Tensor, h: Tensor) -> Tensor:
        """The GRU's step (1, h)."""
        x_r, x_z, x_n = torch.addmm(self["b_gates"], x, self["W_x"]).chunk(3, dim=1)
        h_r, h_z = (h @ self["W_h"]).chunk(2, dim=1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(torch.addmm(x_n, r * h, self["U_n"]))
        return z * h + (1.0 - z) * n


class Plan(NamedTuple):
    """Instances by the length of the outer loop, the longest first.

    n_going: instances that take part in each outer step. labels (n,): of all steps. rows (n,): of
    every step, instance by instance, where it stands step by step.
    """

    loops: list[Loops]
    n_going: list[int]
    labels: Tensor
    rows: Tensor


class Levels(UntrainedParameters):
    """All instances at once: an outer step of all that go on, its inner steps, too.

    In an inner loop those that go on longest come first, so that a step is a slice.
    """

    def __init__(self, model: NestedRNN) -> None:
        super().__init__(model)
        self.read, self.width = Once(partial(listed, model)), model.sizes.hidden_size

    def prepare(self, chains: Sequence[Chain]) -> list[Loops]:
        """Python numbers."""
        return [self.read(chain) for chain in chains]

    def plan(self, batch: Sequence[Loops], device: torch.device) -> Plan:
        """Where states stand."""
        lengths = np.array([len(one.n_inner) for one in batch], dtype=np.int64)
        steps = columns(lengths, device)
        (labels,) = to_device(device, np.repeat([one.label for one in batch], lengths))
        loops = [batch[i] for i in steps.order.tolist()]
        return Plan(loops, steps.sizes, labels[steps.along.places], steps.along.rows)

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all outer steps, step after step."""
        words = [one.word for one in plan.loops]
        h = self.embedding(torch.tensor(words, device=self.embedding.weight.device))
        states = []
        for step, n in enumerate(plan.n_going):
            h = h[:n]
            h[:, 0].tolist()  # waits: only now is known how often inner loops run
            h = self.outer(self.ran(h, [one.n_inner[step] for one in plan.loops[:n]]), h)
            states.append(h)
        scores = self.by("W_out")(torch.cat(states))
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def ran(self, h: Tensor, times: Sequence[int]) -> Tensor:
        """The inner loops' last states (n, h), from the states h that they begin with."""
        order = sorted(range(len(times)), key=lambda i: -times[i])
        rows = torch.tensor(order, device=h.device)
        x, n, inner = h.index_select(0, rows), len(order), self.by("U", "b")
        for step in range(times[order[0]]):
            while times[order[n - 1]] <= step:
                n -= 1
            tanh(inner(x[:n]), x[:n])
        return torch.empty_like(x).index_copy_(0, rows, x)

    def outer(self, x: Tensor, h: Tensor) -> Tensor:
        """The GRU's step (n, h)."""
        gates, width = self.by("W_x", "b_gates")(x), self.width
        r_z, n = gates[:, : 2 * width], gates[:, 2 * width :]
        r, z = self.by("W_h").add_to(r_z, h).sigmoid_().chunk(2, dim=1)
        self.by("U_n").add_to(n, r * h)
        n = tanh(n)
        return torch.addcmul(n, z, h - n)

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Instance by instance."""
        ordered: NDArray[Any] = outputs[plan.rows.cpu().numpy()]
        return ordered


EAGER = {"nested_rnn": Recursive}
LEVELS = {"nested_rnn": Levels}
