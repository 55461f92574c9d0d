"""Kernels of Tree-LSTM training as in the papers: generated, but not started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynbatch.harness.contracts.model import ModelSizes, draw_initial_weights
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.engine.backends.cuda.backend import Backend
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from tests.support.instances import draw_trees

N_CLASSES = 5  # as in SST; the vocabulary size is not in a kernel's text


class Unstarted(Backend):
    """Backend that generates kernels, and starts none."""

    @classmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        return None

    def _start(self, *kernels: str) -> None:
        pass


def modules_of(hidden_size: int, precision: str = "ieee") -> Mapping[str, KernelModule]:
    """Return the module of every kernel."""
    sizes = ModelSizes(hidden_size, {"words": 100, "classes": N_CLASSES})
    model = VertexModel(TreeLSTM(sizes), deduplicate_inputs=False, outputs="stage")
    weights = draw_initial_weights(TreeLSTM(sizes), 1)
    switches = Switches(precision=precision)
    engine = Engine(
        model.functions, model.output, weights, switches, "cpu", train=True, kind=Unstarted
    )
    mini_batch = model.mini_batch(draw_trees(sizes, (5, 7)))
    engine.arrange(mini_batch, schedule_in_segments(load_policy("agenda"), mini_batch.graph))
    backend: Any = engine.backend
    found: Mapping[str, KernelModule] = backend._preparation.modules
    return found
