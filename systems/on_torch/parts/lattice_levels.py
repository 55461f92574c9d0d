"""What lattice networks batched by hand have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from harness.values.instances import Lattice
from systems.on_torch.parts.lattice_parameters import LatticeParameters
from systems.on_torch.parts.lattice_steps import LatticeSteps, Steps
from systems.on_torch.parts.rows import on_device
from systems.plans.lattices import lattice_rows

Array = NDArray[np.floating[Any]]


class LatticeLevels(LatticeParameters):
    """Steps of all lattices side by side; the classifier once, over all states.

    Measured with lattice_lstm on one core of a busy machine, Weibo lattices, batch 64, hidden 128,
    ms a mini-batch, medians in turns, inference and training: words in as few batches as possible
    19.5 and 53 to 57, each as soon as it has begun (longest path) 21.6 and 60, only when it ends
    22.0 and 61. h and c apart instead of in one tensor: 19.1 and 51. tanh by sigmoid instead of
    MKL's: 18.7 instead of 21.1; hidden 64, 11.0 instead of 12.0.
    """

    steps: ClassVar[Callable[..., Steps]]

    def prepare(self, lattices: Sequence[Lattice]) -> Sequence[Lattice]:
        """The lattices as they are; planning is timed."""
        return lattices

    def plan(self, lattices: Sequence[Lattice], device: torch.device) -> Any:
        """Rows of all states, batches of words."""
        return on_device(lattice_rows(lattices), device)

    def forward(self, plan: Any) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all states in the plan's order."""
        x, y = self.characters(plan.characters), self.words(plan.words)
        h = LatticeSteps.apply(self.steps, plan, self.start, x, y, *self.weights)  # type: ignore[no-untyped-call]
        logits = self.classifier(h)
        return functional.cross_entropy(logits, plan.labels, reduction="sum"), logits

    @property
    @abstractmethod
    def start(self) -> Tensor:
        """The state before the first character."""

    @property
    @abstractmethod
    def weights(self) -> Sequence[Tensor]:
        """Of characters' cells, then of words'."""

    def in_canonical_order(self, plan: Any, outputs: Array) -> Array:
        """Rows of the outputs in the order of MiniBatch.outputs."""
        canonical = np.empty_like(outputs)
        canonical[plan.order] = outputs
        return canonical
