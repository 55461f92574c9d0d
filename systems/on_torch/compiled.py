"""PyTorch with the elementwise part of LSTM cells (sentences and trees) compiled by torch.compile.

Matmuls stay PyTorch's. The number of rows is dynamic; hidden sizes are compile-time constants.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.machine.caches import (
    delete_oldest,
    keep_packed,
    make_cache_folder,
    unpack_kept,
)
from dynbatch.harness.machine.facts import hash_cpu
from dynbatch.harness.machine.folders import make_process_folder
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.systems.on_torch.levels import Adapter as LevelsAdapter
from dynbatch.systems.on_torch.models.child_sum import TreeChildSumCell
from dynbatch.systems.on_torch.models.lstm import Columnwise, StepStates
from dynbatch.systems.on_torch.models.tree_steps import TreeGates, TreeLSTMCell

SENTENCES = ("chain", "sentence_pair", "parsed_sentence")
Parts = dict[str, tuple[int, ...]]  # functions, and widths of their arguments in hidden sizes
FOLDER = "inductor"
MAX_ENTRIES = 200  # about 200 KB each


def compute_first_state(gates: Tensor, tanh_c: Tensor, h: Tensor) -> Tensor:
    """Compute StepStates.advance from a state of zeros; return c."""
    i, f, g, o = gates.chunk(4, 1)
    i, g, o = i.sigmoid(), g.tanh(), o.sigmoid()
    c = i * g
    return _write_lstm_state(gates, (i, f.sigmoid(), g, o), c, tanh_c, h)


def compute_next_state(gates: Tensor, c_before: Tensor, tanh_c: Tensor, h: Tensor) -> Tensor:
    """Compute StepStates.advance; return c, because c_before and c share memory."""
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    return _write_lstm_state(gates, (i, f, g, o), f * c_before + i * g, tanh_c, h)


def _write_lstm_state(
    gates: Tensor, i_f_g_o: tuple[Tensor, ...], c: Tensor, tanh_c: Tensor, h: Tensor
) -> Tensor:
    for part, values in zip(gates.chunk(4, 1), i_f_g_o, strict=True):
        part.copy_(values)
    tanh_c.copy_(c.tanh())
    h.copy_(i_f_g_o[3] * tanh_c)
    return c


def compute_gate_gradients(
    dh: Tensor, dc: Tensor, gates: Tensor, tanh_c: Tensor, c_before: Tensor, d: Tensor
) -> None:
    """Compute StepStates.backpropagate_step."""
    i, f, g, o = gates.chunk(4, 1)
    di, df, dg, do = d.chunk(4, 1)
    dc_all = dc + dh * o * (1 - tanh_c * tanh_c)
    di.copy_(dc_all * g * i * (1 - i))
    df.copy_(dc_all * c_before * f * (1 - f))
    dg.copy_(dc_all * i * (1 - g * g))
    do.copy_(dh * tanh_c * o * (1 - o))
    dc.copy_(dc_all * f)


class CompiledStates(StepStates):
    """LSTM steps with one compiled function per elementwise part."""

    forward_parts: ClassVar[Parts] = {"first": (4, 1, 1), "next": (4, 1, 1, 1)}
    backward_parts: ClassVar[Parts] = {"gradients": (1, 1, 4, 1, 1, 4)}
    first = staticmethod(torch.compile(compute_first_state))
    next = staticmethod(torch.compile(compute_next_state))
    gradients = staticmethod(torch.compile(compute_gate_gradients))

    @staticmethod
    def advance(
        gates: Tensor, c_before: Tensor | None, c: Tensor, tanh_c: Tensor, h: Tensor
    ) -> None:
        """Call the compiled functions, which cannot write to memory that they also read."""
        if c_before is None:
            c.copy_(CompiledStates.first(gates, tanh_c, h))
        else:
            c.copy_(CompiledStates.next(gates, c_before, tanh_c, h))

    @staticmethod
    def backpropagate_step(
        dh: Tensor, dc: Tensor, gates: Tensor, tanh_c: Tensor, c_before: Tensor, d: Tensor
    ) -> None:
        CompiledStates.gradients(dh, dc, gates, tanh_c, c_before, d)


def compute_leaf_state(i_o_u: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor) -> None:
    i, o, u = i_o_u.chunk(3, 1)
    i, o, u = i.sigmoid(), o.sigmoid(), u.tanh()
    _write_tree_state(i_o_u, (i, o, u), i * u, c, tanh_c, h)


def compute_internal_state(
    i_o_u: Tensor, f_1: Tensor, f_2: Tensor, both_c: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor
) -> None:
    i, o, u = i_o_u.chunk(3, 1)
    i, o, u = i.sigmoid(), o.sigmoid(), u.tanh()
    c_1, c_2 = both_c.chunk(2, 1)
    first, second = f_1.sigmoid(), f_2.sigmoid()
    new_c = i * u + first * c_1 + second * c_2
    f_1.copy_(first)
    f_2.copy_(second)
    _write_tree_state(i_o_u, (i, o, u), new_c, c, tanh_c, h)


def _write_tree_state(
    i_o_u: Tensor,
    gates: tuple[Tensor, Tensor, Tensor],
    new_c: Tensor,
    c: Tensor,
    tanh_c: Tensor,
    h: Tensor,
) -> None:
    for part, values in zip(i_o_u.chunk(3, 1), gates, strict=True):
        part.copy_(values)
    new_tanh = new_c.tanh()
    c.copy_(new_c)
    tanh_c.copy_(new_tanh)
    h.copy_(gates[1] * new_tanh)


def compute_leaf_gradients(
    dh: Tensor, dc: Tensor, i_o_u: Tensor, tanh_c: Tensor, d: Tensor
) -> None:
    """Compute TreeLSTMCell.through_leaf, but leave dc unchanged."""
    _write_gate_gradients(dh, dc, i_o_u, tanh_c, d)


def _write_gate_gradients(
    dh: Tensor, dc: Tensor, i_o_u: Tensor, tanh_c: Tensor, d: Tensor
) -> Tensor:
    i, o, u = i_o_u.chunk(3, 1)
    di, do, du = d.chunk(3, 1)
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    di.copy_(dc * u * i * (1 - i))
    do.copy_(dh * tanh_c * o * (1 - o))
    du.copy_(dc * i * (1 - u * u))
    return dc


def compute_internal_gradients(
    dh: Tensor,
    dc: Tensor,
    i_o_u: Tensor,
    f_1: Tensor,
    f_2: Tensor,
    both_c: Tensor,
    tanh_c: Tensor,
    d: Tensor,
    d_1: Tensor,
    d_2: Tensor,
    d_both_c: Tensor,
) -> None:
    """Compute TreeLSTMCell.through_internal, but leave dc unchanged."""
    dc = _write_gate_gradients(dh, dc, i_o_u, tanh_c, d)
    sides = zip((f_1, f_2), (d_1, d_2), both_c.chunk(2, 1), d_both_c.chunk(2, 1), strict=True)
    for f, df, c, dc_below in sides:
        df.copy_(dc * c * f * (1 - f))
        dc_below.copy_(dc * f)


class CompiledCell(TreeLSTMCell):
    """Tree-LSTM cell with one compiled function per part."""

    forward_parts: ClassVar[Parts] = {"leaf": (3, 1, 1, 1), "internal": (3, 1, 1, 2, 1, 1, 1)}
    backward_parts: ClassVar[Parts] = {
        "through_leaf": (1, 1, 3, 1, 3),
        "by_function": (1, 1, 3, 1, 1, 2, 1, 3, 1, 1, 2),
    }
    leaf = staticmethod(torch.compile(compute_leaf_state))
    internal = staticmethod(torch.compile(compute_internal_state))
    through_leaf = staticmethod(torch.compile(compute_leaf_gradients))
    by_function = staticmethod(torch.compile(compute_internal_gradients))

    @staticmethod
    def through_internal(
        dh: Tensor, dc: Tensor, gates: TreeGates, tanh_c: Tensor, d: TreeGates
    ) -> None:
        """Call the compiled function, which takes only tensors."""
        CompiledCell.by_function(dh, dc, *gates, tanh_c, *d)


def compute_child_sum_state(
    i_o_u: Tensor, both_f: Tensor, both_c: Tensor, c: Tensor, tanh_c: Tensor, h: Tensor
) -> None:
    """Compute TreeChildSumCell.internal."""
    f_1, f_2 = both_f.chunk(2, 1)
    compute_internal_state(i_o_u, f_1, f_2, both_c, c, tanh_c, h)


def compute_child_sum_gradients(
    dh: Tensor,
    dc: Tensor,
    i_o_u: Tensor,
    both_f: Tensor,
    both_c: Tensor,
    tanh_c: Tensor,
    d: Tensor,
    d_both_f: Tensor,
    d_both_c: Tensor,
) -> None:
    """Compute TreeChildSumCell.through_internal, but leave dc unchanged."""
    (f_1, f_2), (d_1, d_2) = both_f.chunk(2, 1), d_both_f.chunk(2, 1)
    compute_internal_gradients(dh, dc, i_o_u, f_1, f_2, both_c, tanh_c, d, d_1, d_2, d_both_c)


class CompiledChildSumCell(TreeChildSumCell):
    """Child-sum Tree-LSTM cell with one compiled function per part."""

    forward_parts: ClassVar[Parts] = {"leaf": (3, 1, 1, 1), "internal": (3, 2, 2, 1, 1, 1)}
    backward_parts: ClassVar[Parts] = {
        "through_leaf": (1, 1, 3, 1, 3),
        "through_internal": (1, 1, 3, 2, 2, 1, 3, 2, 2),
    }
    leaf = staticmethod(torch.compile(compute_leaf_state))
    internal = staticmethod(torch.compile(compute_child_sum_state))
    through_leaf = staticmethod(torch.compile(compute_leaf_gradients))
    through_internal = staticmethod(torch.compile(compute_child_sum_gradients))


Cell = type[CompiledStates | CompiledCell | CompiledChildSumCell]
TREES: dict[str, Cell] = {
    "tree_lstm": CompiledCell,
    "tree_lstm_child_sum": CompiledChildSumCell,
}


def compile_parts(cell: Cell, h: int, device: torch.device, *, backward: bool) -> None:
    """Compile a cell's functions for a hidden size, for dynamic rows and for one row."""
    parts = cell.forward_parts | (cell.backward_parts if backward else {})
    with torch.no_grad():
        for n in (3, 1):
            for name, widths in parts.items():
                getattr(cell, name)(*(make_dynamic_rows(n, k * h, device) for k in widths))


def make_dynamic_rows(n: int, width: int, device: torch.device) -> Tensor:
    """Return zeros (n, width) that make torch.compile compile for any number of rows above one."""
    values = torch.zeros(n, width, device=device)
    if n > 1:
        torch._dynamo.mark_dynamic(values, 0)
    return values


@contextmanager
def keep_graphs(what: str) -> Iterator[None]:
    """Let torch.compile reuse, within this context, results of other processes.

    torch's own cache is in a directory whose name all users know, and is loaded without validation:
    one empty library makes every later run fail. So each process gets a directory of its own,
    filled from a verified cache entry.

    Args:
        what: purpose of the compilation, part of the cache key. torch compares cached results with
            the code to compile, but not with the CPU, although it compiles with -march=native.
    """
    own = make_process_folder(FOLDER)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own)
    folder = make_cache_folder(FOLDER)
    if folder is None:
        yield
        return
    facts = (torch.__version__, torch.backends.cpu.get_cpu_capability(), hash_cpu(), what)
    entry = folder / hashlib.sha256(repr(facts).encode()).hexdigest()
    unpack_kept(entry, own)
    existing = {path for path in own.rglob("*") if path.is_file()}
    yield
    if {path for path in own.rglob("*") if path.is_file() and path.stat().st_size} - existing:
        keep_packed(own, entry)
        delete_oldest(folder, MAX_ENTRIES)


class Adapter(LevelsAdapter):
    """Manually batched system with the elementwise part of each step compiled to one loop.

    Steps, levels and a cell's matmuls are called from Python, as in the manually batched system.
    Compilation takes place in `prepare`, so that the record has its time separately (compile_s); it
    is shorter if torch.compile finds cached results. Compilations during mini-batches are counted.
    Tree-LSTM on one core of a busy machine, SST, batch size 64, speedup over the system without
    compilation: training, hidden sizes 64 and 256, 0.89 and 0.92, inference, hidden size 64, 0.89:
    calls cost more than they save.
    """

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return why the system cannot run: no LSTM cell, or no compiler for what it generates."""
        has_lstm = model.instance_kind in SENTENCES and not isinstance(model, ProgramModel)
        if not has_lstm and model.name not in TREES:
            return (
                f"torch_compiled compiles LSTM cells, and model {model.name} has none; choose"
                " system=torch_levels if it has the model"
            )
        if settings.device == "cpu" and _find_compiler() is None:
            return "torch.compile needs a C++ compiler on a CPU; install g++, or set CXX"
        if settings.device == "cuda" and not any(map(shutil.which, _list_c_compilers())):
            return "torch.compile needs a C compiler for Triton; install gcc, or set CC"
        return super().skip(model, settings)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Compile for every hidden size of the model's cells."""
        # Processes that compile in parallel would still start while other systems have their turn.
        inductor.compile_threads = 1
        torch._dynamo.config.automatic_dynamic_shapes = False  # only rows are dynamic
        torch._dynamo.config.recompile_limit = 64  # one function per hidden size and mode
        super().prepare(model, weights)
        recurrent = (m for m in self._net.modules() if isinstance(m, nn.LSTM | nn.LSTMCell))
        sizes = {module.hidden_size for module in recurrent} or {model.sizes.hidden_size}
        cell = TREES.get(model.name, CompiledStates)
        training = self.settings.mode == "train"
        what = f"{cell.__name__} {sorted(sizes)} {self._device} {self.settings.mode}"
        with keep_graphs(what), torch.inference_mode(not training):
            for h in sorted(sizes):
                compile_parts(cell, h, self._device, backward=training)

    def n_compilations(self) -> int:
        """Return the number of graphs that torch.compile has compiled."""
        return int(counters["stats"]["unique_graphs"])

    def _build(self, network: Callable[..., nn.Module], model: Model) -> nn.Module:
        if model.name in TREES:
            return network(model, cell=TREES[model.name])
        return network(model, Columnwise(CompiledStates))

    def effective_options(self) -> dict[str, str]:
        """Return the options, with the number of graphs that were found in the cache."""
        return super().effective_options() | {
            "compiled_graphs_from_cache": str(counters["inductor"]["fxgraph_cache_hit"]),
        }


def _list_c_compilers() -> tuple[str, ...]:
    """Return the C compilers that Triton tries."""
    named = os.environ.get("CC")
    return (named,) if named else ("gcc", "clang")


def _find_compiler() -> str | None:
    """Return the C++ compiler that torch.compile would use, or None."""
    named = inductor.cpp.cxx
    names = [named] if isinstance(named, str) else [name for name in named if name]
    if os.environ.get("CXX"):
        names.insert(0, os.environ["CXX"])
    return next((path for path in map(shutil.which, names) if path), None)
