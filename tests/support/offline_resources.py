"""Compiles the kernels of Tree-LSTM in training for an H200, and prints what they take as JSON.

    python -m tests.support.offline_resources PRECISION by_phase|persistent KERNEL...

In a process of its own: Triton either compiles or interprets, as it was first imported.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from harness.contracts.model import ModelSizes, initial_weights
from harness.contracts.policy import load_policy
from harness.engine.backends.cuda.backend import Backend
from harness.engine.backends.cuda.offline import resources_of
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.granularity.vertices import VertexModel
from harness.models.tree_lstm import TreeLSTM
from harness.policies.parts.rounds import schedule_in_rounds
from tests.support.drawn_trees import trees

HIDDEN_SIZE = 64


class Unstarted(Backend):
    """Writes kernels, and starts none."""

    def _start(self, *kernels: str) -> None:
        pass


def main(precision: str, launch: str, *kernels: str) -> None:
    sizes = ModelSizes(HIDDEN_SIZE, {"words": 100, "classes": 5})
    model = VertexModel(TreeLSTM(sizes), share_equal_inputs=False, outputs="stage")
    assert model.output is not None
    weights = initial_weights(TreeLSTM(sizes), 1)
    outputs = [model.output]
    switches = Switches(precision=precision, persistent=launch == "persistent")
    engine = Engine(model.functions, outputs, weights, switches, "cpu", train=True, kind=Unstarted)
    mini_batch = model.mini_batch(trees(sizes, (5, 7)))
    engine.arrange(mini_batch, schedule_in_rounds(load_policy("agenda"), mini_batch.graph))
    backend: Any = engine.backend
    modules = {kernel: backend._preparation.modules[kernel] for kernel in kernels}
    found = {kernel: asdict(resources_of(m, "sm_90")) for kernel, m in modules.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
