"""Kernels of Tree-LSTM training as in the papers: generated, but not started."""

from __future__ import annotations

from collections.abc import Mapping

from dynbatch.harness.contracts.model import ModelSizes, draw_initial_weights
from dynbatch.harness.engine.backends.cuda.backend import Backend
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.models.tree_lstm import TreeLSTM
from tests.support.engine_setting import Setting
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
    case = TreeLSTM(sizes), draw_trees(sizes, (5, 7)), draw_initial_weights(TreeLSTM(sizes), 1)
    setting = Setting(case, Switches(precision=precision), Unstarted)
    setting.arrange(setting.model.mini_batch(setting.instances))
    return setting.backend._preparation.modules
