"""NestedRNN in PyTorch, one instance at a time (Recursive) and all at once (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.models.nested_rnn import NestedRNN
from harness.values.instances import Chain
from systems.on_torch.parts.nonlinear import tanh
from systems.on_torch.parts.rows import columns, to_device
from systems.on_torch.parts.untrained import UntrainedLinear


class Loops(NamedTuple):
    """One instance: the word that it begins with, its label, and inner steps of each outer one."""

    word: int
    label: int
    n_inner: list[int]


class _NestedRNN(nn.Module):
    """Parameters of harness.models.nested_rnn."""

    def __init__(self, model: NestedRNN, kind: type[nn.Linear]) -> None:
        super().__init__()
        self.loops, h = model.loops, model.sizes.hidden_size
        self.embedding = nn.Embedding(model.sizes.of("words"), h)
        self.inner = kind(h, h)
        self.of_input = kind(h, 3 * h)
        self.of_state = kind(h, 2 * h, bias=False)
        self.of_reset = kind(h, h, bias=False)
        self.classifier = kind(h, model.sizes.of("classes"), bias=False)
        self.SHARED = {
            "embedding": "embedding.weight",
            "U": "inner.weight",
            "b": "inner.bias",
            "W_x": "of_input.weight",
            "b_gates": "of_input.bias",
            "W_h": "of_state.weight",
            "U_n": "of_reset.weight",
            "W_out": "classifier.weight",
        }

    def prepare(self, chains: Sequence[Chain]) -> list[Loops]:
        """Python numbers."""
        return [Loops(int(c.words[0]), int(c.labels[0]), self.loops(c)) for c in chains]

    def outer(self, x: Tensor, h: Tensor) -> Tensor:
        """The GRU's step (n, h)."""
        x_r, x_z, x_n = self.of_input(x).chunk(3, dim=1)
        h_r, h_z = self.of_state(h).chunk(2, dim=1)
        z = torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + self.of_reset(torch.sigmoid(x_r + h_r) * h))
        return z * h + (1.0 - z) * n


class Recursive(_NestedRNN):
    """One instance at a time; every state of the outer loop is read before it goes on."""

    def __init__(self, model: NestedRNN) -> None:
        super().__init__(model, nn.Linear)

    def forward(self, batch: list[Loops]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all steps of outer loops."""
        device, losses, outputs = self.embedding.weight.device, [], []
        for word, label, loops in batch:
            h = self.embedding(torch.tensor([word], device=device))
            states = []
            for n_inner in loops:
                float(h[0, 0])  # waits: only now is known how often the inner loop runs
                x = h
                for _ in range(n_inner):
                    x = torch.tanh(self.inner(x))
                h = self.outer(x, h)
                states.append(h)
            outputs.append(self.classifier(torch.cat(states)))
            right = torch.full((len(loops),), label, device=device)
            losses.append(functional.cross_entropy(outputs[-1], right, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)


class Plan(NamedTuple):
    """Instances by the length of the outer loop, the longest first.

    n_going: instances that take part in each outer step. labels (n,): of all steps. rows (n,): of
    every step, instance by instance, where it stands step by step.
    """

    loops: list[Loops]
    n_going: list[int]
    labels: Tensor
    rows: Tensor


class Levels(_NestedRNN):
    """All instances at once: an outer step of all that go on, its inner steps, too.

    In an inner loop those that go on longest come first, so that a step is a slice.
    """

    def __init__(self, model: NestedRNN) -> None:
        super().__init__(model, UntrainedLinear)

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
        scores = self.classifier(torch.cat(states))
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def ran(self, h: Tensor, times: Sequence[int]) -> Tensor:
        """The inner loops' last states (n, h), from the states h that they begin with."""
        order = sorted(range(len(times)), key=lambda i: -times[i])
        rows = torch.tensor(order, device=h.device)
        x, n = h.index_select(0, rows), len(order)
        for step in range(times[order[0]]):
            while times[order[n - 1]] <= step:
                n -= 1
            tanh(self.inner(x[:n]), x[:n])
        return torch.empty_like(x).index_copy_(0, rows, x)

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Instance by instance."""
        ordered: NDArray[Any] = outputs[plan.rows.cpu().numpy()]
        return ordered
