"""TensorFlow Fold, re-implemented on TensorFlow 2: dynamic batching by depth in one while loop.

Measured on one core, Tree-LSTM on SST, batch 64, hidden 256, training: 1062 trees/s. Of what else
was tried nothing was faster: the loop unrolled, a program for every depth that occurs, 1033, and 5
to 7 s of tracing for each of them; one gather a type shape and depth, split afterwards, 917;
parallel_iterations 1 instead of 10, 988; TensorFlow's own products instead of oneDNN's, 856.

Source: Looks et al., "Deep Learning with Dynamic Computation Graphs", ICLR 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.contracts.model import Model, Weights
from harness.contracts.system import Counters, RunSettings
from harness.errors import ConfigError
from harness.machine.facts import usable_cpus
from systems.on_tensorflow.loom.network import LoomNetwork
from systems.on_tensorflow.runtime import TensorFlowSystem


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """workers: processes that weave examples; 1: none but the own, 0: as many as there are CPUs.

    Raises ConfigError for a negative number.
    """

    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ConfigError(
                f"system.options.workers={self.workers} is not allowed; give 1 or more, or 0 for"
                " as many as there are CPUs"
            )


class Adapter(TensorFlowSystem):
    """Weaves a mini-batch (construct), then runs all its depths in one program."""

    option_type = FoldOptions
    networks = "systems.on_tensorflow.loom.models:FOLD"
    _net: LoomNetwork

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._n_workers = self.options.workers or len(usable_cpus())

    def prepare(self, model: Model, weights: Weights) -> None:
        """Also start the workers."""
        super().prepare(model, weights)
        self._net.preprocess_with(self._n_workers)

    def load(self, instances: Sequence[Any]) -> None:
        """Take the next mini-batch."""
        super().load(list(instances))

    def counters(self) -> Counters:
        """What the wiring says."""
        return self._net.counters(2 if self._trains else 1)

    def in_force(self) -> dict[str, str]:
        """How many processes weave."""
        return super().in_force() | {"workers": str(self._n_workers)}
