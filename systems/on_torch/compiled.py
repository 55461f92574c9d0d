"""PyTorch with the elementwise part of LSTM cells, of sentences or trees, by torch.compile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from harness.contracts.model import Model, Weights
from harness.contracts.system import RunSettings
from harness.programs.model import ProgramModel
from systems.on_torch.kept_graphs import graphs_kept
from systems.on_torch.levels import Adapter as LevelsAdapter
from systems.on_torch.parts.compiled_cell import CompiledCell
from systems.on_torch.parts.compiled_steps import CompiledStates
from systems.on_torch.parts.recurrences import Columnwise

SENTENCES = ("chain", "sentence_pair", "parsed_sentence")
TREES = ("tree_lstm", "tree_lstm_2type")


class Adapter(LevelsAdapter):
    """The hand-written system, the elementwise part of each step compiled to one loop.

    Steps, levels and a cell's products are called from Python, as in the hand-written system.
    Compiled in prepare, so that the record tells the time apart (compile_s); shorter where
    torch.compile finds what was kept. What is compiled again while mini-batches come is counted.
    Tree-LSTM on one core of a busy machine, SST, batch 64, times as fast as without: training,
    hidden 64 and 256, 0.89 and 0.92, inference, hidden 64, 0.89: calls cost more than they save.
    """

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """An LSTM cell has to be there to be compiled, and on a CPU a C++ compiler."""
        has_lstm = model.instance_kind in SENTENCES and not isinstance(model, ProgramModel)
        if not has_lstm and model.name not in TREES:
            return (
                f"torch_compiled compiles the LSTM cell, which model {model.name} does not have;"
                " system=torch_levels runs it where it is written for torch"
            )
        if settings.device == "cpu" and _compiler() is None:
            return "torch.compile needs a C++ compiler on a CPU; install g++, or name one in CXX"
        return super().skip(model, settings)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Compile for every hidden size of the model's cells."""
        torch._dynamo.config.automatic_dynamic_shapes = False  # rows alone are dynamic
        torch._dynamo.config.recompile_limit = 64  # a function for each hidden size and mode
        super().prepare(model, weights)
        recurrent = (m for m in self._net.modules() if isinstance(m, nn.LSTM | nn.LSTMCell))
        sizes = {module.hidden_size for module in recurrent} or {model.sizes.hidden_size}
        cell = CompiledCell if model.name in TREES else CompiledStates
        training = self.settings.mode == "train"
        what = f"{cell.__name__} {sorted(sizes)} {self._device} {self.settings.mode}"
        with graphs_kept(what), torch.inference_mode(not training):
            for h in sorted(sizes):
                cell.compile_for(h, self._device, backward=training)

    def n_compilations(self) -> int:
        """Graphs that torch.compile has compiled."""
        return int(counters["stats"]["unique_graphs"])

    def _build(self, network: Callable[..., nn.Module], model: Model) -> nn.Module:
        return network(model, CompiledCell if model.name in TREES else Columnwise(CompiledStates))

    def in_force(self) -> dict[str, str]:
        """How much of what was compiled was found, and not compiled."""
        return super().in_force() | {
            "compiled_graphs_from_cache": str(counters["inductor"]["fxgraph_cache_hit"]),
        }


def _compiler() -> str | None:
    """The C++ compiler that torch.compile would take, or None."""
    named = inductor.cpp.cxx
    names = [named] if isinstance(named, str) else [name for name in named if name]
    if os.environ.get("CXX"):
        names.insert(0, os.environ["CXX"])
    return next((path for path in map(shutil.which, names) if path), None)
