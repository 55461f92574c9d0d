"""Generated kernels compiled for a GPU that is not here: they compile, and fit its processors."""

from __future__ import annotations

from typing import Any

import pytest

import harness.engine.engine
from harness.contracts.model import ModelSizes, initial_weights
from harness.contracts.policy import load_policy
from harness.engine.backends.cuda.backend import Backend
from harness.engine.backends.cuda.model import KERNELS
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.granularity.vertices import VertexModel
from harness.models.tree_lstm import TreeLSTM
from harness.policies.parts.rounds import schedule_in_rounds
from tests.support.sketch_trees import trees

offline = pytest.importorskip(
    "harness.engine.backends.cuda.offline", reason="Triton is not installed", exc_type=ImportError
)

HIDDEN_SIZE = 64
MOST_REGISTERS = 255  # of a thread
MOST_SPILLED_BYTES = 64  # of a thread, in loops over tiles that are read once
MOST_SHARED_BYTES = 100 * 1024  # so that two programs fit a processor with 228 KiB


class Unstarted(Backend):
    """Writes kernels, and starts none."""

    @classmethod
    def why_not(cls, switches: Switches, device: str) -> str | None:
        return None

    def _start(self, *kernels: str) -> None:
        pass


@pytest.fixture(scope="module")
def backend() -> Any:
    """A backend that has written the kernels of Tree-LSTM in training."""
    sizes = ModelSizes(HIDDEN_SIZE, {"words": 100, "classes": 5})
    model = VertexModel(TreeLSTM(sizes), share_equal_inputs=False, outputs="stage")
    assert model.output is not None
    weights = initial_weights(TreeLSTM(sizes), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        patch.setattr(harness.engine.engine, "choose_backend", lambda *_: Unstarted)
        engine = Engine(model.functions, [model.output], weights, Switches(), "cpu", train=True)
        mini_batch = model.mini_batch(trees(sizes, (5, 7)))
        engine.arrange(mini_batch, schedule_in_rounds(load_policy("agenda"), mini_batch.graph))
        yield engine.backend


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_fits_an_h200(backend: Any, kernel: str) -> None:
    module = backend._numbers[kernel].module
    found = offline.resources_of(module, "sm_90")
    assert found.n_registers <= MOST_REGISTERS
    assert found.spilled_bytes <= MOST_SPILLED_BYTES
    assert found.shared_bytes <= MOST_SHARED_BYTES


def test_an_unknown_architecture_is_none(backend: Any) -> None:
    with pytest.raises(KeyError, match="sm_1"):
        offline.resources_of(backend._numbers["update"].module, "sm_1")
