"""Device memory, the words that a mini-batch puts there, and its results as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.contracts.model import Weights
from harness.engine.backend import Arrangement
from harness.engine.backends.cuda.kinds import TableStepKind, Tiling
from harness.engine.backends.cuda.model import KERNELS, ModelKinds, kinds_of
from harness.engine.backends.cuda.module import Module, entries_of, write_module
from harness.engine.backends.cuda.program import NO_RUN, BatchRows, Writer, batch_rows
from harness.engine.backends.cuda.text import N_SLOTS
from harness.engine.backends.cuda.words import (
    SHARED,
    BufferOf,
    FloatArray,
    Indices,
    ParameterOf,
    Reader,
    Totals,
    WordArray,
    Words,
)
from harness.engine.cpu_kernels import loss_kernels
from harness.engine.lowering.plan import Plan, Ref, state_buffer
from harness.engine.rows.layout import Run
from harness.engine.switches import Switches
from harness.errors import UnsupportedTrial
from harness.values.arrays import IntArray
from harness.vertex.folding import FoldedTable
from harness.vertex.operators import EDGE
from harness.vertex.subgraph.columns import Pack

GROWTH = 1.25  # so that slightly larger mini-batches do not reallocate each time
MOST_ELEMENTS = 2**31 - 1  # kernels count elements of an array in int32


class Memory:
    """Arrays of one engine on one device.

    empty: makes room for floats; tests put values there that show where nothing was written.
    on_move: called before an array gives up its place, so that nobody goes on holding it.
    """

    def __init__(self, weights: Weights, device: torch.device) -> None:
        for name, weight in weights.items():
            _check_size(f"parameter {name}", weight.size, "hidden_size")
        self.device = device
        self.loaded = tuple(weights)
        self.parameters = {
            name: torch.tensor(weight, dtype=torch.float32, device=device).contiguous()
            for name, weight in weights.items()
        }
        self.gradients: dict[str, Tensor] = {}
        self.packs: dict[str, Pack] = {}
        self.buffers: dict[BufferOf, Tensor] = {}
        self.widths: dict[BufferOf, int] = {}
        self.rate = torch.zeros(1, device=device)
        self.totals = torch.zeros(0, device=device)
        self.on_move: Callable[[], None] = _nobody_holds_it
        self._shared: list[BufferOf] = []
        self._room: dict[int, tuple[int, int]] = {}  # rows and edges of a function that fit

    def empty(self, *shape: int) -> Tensor:
        """Room for floats."""
        return torch.empty(shape, device=self.device)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of all parameters, packs and folded tables among them."""
        return {name: tuple(value.shape) for name, value in self.parameters.items()}

    def add(self, type_id: int, plan: Plan) -> None:
        """Make the buffers of one more function, empty, and the parameters that it adds."""
        self._fold(plan.tables)
        self._pack(plan.packs)
        for name, buffer in plan.buffers.items():
            key = BufferOf(SHARED if name.is_shared else type_id, name)
            self.widths.setdefault(key, buffer.width)
        for name, width in plan.read_states().items():
            self.widths.setdefault(BufferOf(SHARED, name), width)
        for key, width in self.widths.items():
            if key not in self.buffers:
                self.buffers[key] = self.empty(1, width)  # an array without memory has no address
        self._shared = [key for key in self.buffers if key.name.is_shared]

    def _fold(self, tables: Iterable[FoldedTable]) -> None:
        for folded in tables:
            if folded.name not in self.parameters:
                table, weight = self.parameters[folded.table], self.parameters[folded.weight]
                n_elements = table.shape[0] * weight.shape[1]
                _check_size(
                    f"table {folded.table} times {folded.weight}", n_elements, "hidden_size"
                )
                self.parameters[folded.name] = table @ weight

    def _pack(self, packs: Iterable[Pack]) -> None:
        for pack in packs:
            if pack.name not in self.parameters:
                columns = [
                    self.parameters[p.parameter].narrow(-1, p.start, p.width) for p in pack.parts
                ]
                self.parameters[pack.name] = torch.cat(columns, dim=-1).contiguous()
                self.packs[pack.name] = pack

    def arrange(self, rows: Arrangement, plans: Mapping[int, Plan], *, n_totals: int) -> None:
        """Make room for a mini-batch's rows, and for sums over all of it."""
        if n_totals > len(self.totals):
            self.on_move()
            self.totals = self.empty(n_totals)
        for type_id, geometry in rows.types.items():
            n_rows, n_edges = geometry.rows.n, geometry.n_edges
            room = self._room.get(type_id, (0, 0))
            if n_rows > room[0] or n_edges > room[1]:
                self._room.pop(type_id, None)  # until all of it is there: memory may not suffice
                for name, buffer in plans[type_id].buffers.items():
                    if not name.is_shared:
                        of_edges = buffer.domain == EDGE
                        self._grow(BufferOf(type_id, name), n_edges if of_edges else n_rows)
                self._room[type_id] = (max(n_rows, room[0]), max(n_edges, room[1]))
        for key in self._shared:
            self._grow(key, rows.n_rows.get(key.name.of, 0))

    def _grow(self, key: BufferOf, n_rows: int) -> None:
        if n_rows <= len(self.buffers[key]):
            return
        width = self.widths[key]
        wanted = int(n_rows * GROWTH) + 1
        _check_size(f"{key.name.of}, {n_rows} rows of {width},", wanted * width, "batch_size")
        self.on_move()
        self.buffers[key] = self.empty(1, width)  # the old one goes first: both may not fit
        self.buffers[key] = self.empty(wanted, width)

    def gradient(self, name: str) -> Tensor:
        """The place of a parameter's gradient."""
        if name not in self.gradients:
            self.gradients[name] = self.empty(*self.parameters[name].shape)
        return self.gradients[name]

    def tensor(self, array: FloatArray) -> Tensor:
        """The tensor of an argument."""
        if isinstance(array, BufferOf):
            return self.buffers[array]
        if isinstance(array, ParameterOf):
            return self.parameters[array.name]
        return self.totals if isinstance(array, Totals) else self.gradient(array.name)


def _check_size(what: str, n_elements: int, option: str) -> None:
    """Raise UnsupportedTrial for an array in which int32 cannot count; option: what to lower."""
    if n_elements > MOST_ELEMENTS:
        raise UnsupportedTrial(
            f"{what} would have {n_elements} elements, and kernels count to {MOST_ELEMENTS};"
            f" give a smaller {option}, or use backend=stepwise"
        )


def _nobody_holds_it() -> None:
    """Until somebody says what to do."""


@dataclass(frozen=True, slots=True)
class Results:
    """Reads the memory of one mini-batch; waits for what computes it."""

    memory: Memory
    plans: Mapping[int, Plan]
    rows: Arrangement | None

    def read(self, type_id: int, ref: Ref, rows: slice) -> NDArray[np.float32]:
        """Columns of a function's rows; logits that a gradient has replaced are computed back."""
        found = self._numpy(type_id, ref, rows)
        step = self.plans[type_id].overwritten(ref)
        if step is None or self.rows is None or type_id not in self.rows.types:
            return found
        label = self.rows.types[type_id].pulls[step.label][rows]
        others = (self._numpy(type_id, other, rows) for other in (step.loss, step.log_sum))
        return loss_kernels.logits_of(found, label, *others)

    def _numpy(self, type_id: int, ref: Ref, rows: slice) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._values(type_id, ref)[rows].cpu().numpy().copy()
        return found

    def _values(self, type_id: int, ref: Ref) -> Tensor:
        """Columns of all rows of a function, in the order of its batches."""
        geometry = None if self.rows is None else self.rows.types.get(type_id)
        if geometry is None:
            return torch.zeros((0, ref.width))
        plan, columns = self.plans[type_id], slice(ref.start, ref.start + ref.width)
        buffer = plan.buffers[ref.buffer]
        if ref.buffer.is_gathered:
            states = self.memory.buffers[BufferOf(SHARED, state_buffer(ref.buffer.of))]
            index = torch.from_numpy(geometry.gathers[plan.gathered(ref.buffer)].index)
            return states[index.to(states.device)].reshape(-1, buffer.width)[:, columns]
        if not ref.buffer.is_shared:
            n = geometry.n_edges if buffer.domain == EDGE else geometry.rows.n
            return self.memory.buffers[BufferOf(type_id, ref.buffer)][:n, columns]
        matrix = self.memory.buffers[BufferOf(SHARED, ref.buffer)]
        first_rows = geometry.rows.first_row.tolist()
        sizes = np.diff(geometry.rows.starts).tolist()
        pieces = zip(first_rows, sizes, strict=True)
        return torch.cat([matrix[first : first + n, columns] for first, n in pieces])

    def gradients(self, summed: Collection[str]) -> Weights:
        """Dense gradients of what was loaded; summed: parameters that have one on the device."""
        memory = self.memory
        found = {name: np.zeros(shape, dtype=np.float32) for name, shape in memory.shapes.items()}
        for name in summed:
            found[name] += memory.gradients[name].cpu().numpy()
        for type_id, plan in self.plans.items():
            geometry = None if self.rows is None else self.rows.types.get(type_id)
            for node in plan.row_sums() if geometry is not None else ():
                assert geometry is not None
                rows, dy = node.inputs
                values = self._numpy(type_id, plan.refs[dy], slice(None))
                np.add.at(found[node.name], geometry.pulls[plan.nodes[rows].name], values)
        for name, pack in memory.packs.items():
            for part, at in pack.places():
                mine = found[part.parameter][..., part.start : part.start + part.width]
                mine += found[name][..., at : at + part.width]
        return {name: found[name] for name in memory.loaded}


NOTHING: Words = np.zeros(2, dtype=np.int32)  # a program without phases


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A mini-batch in words.

    programs: of every kernel, in their order. indices: arrays behind them, as `places` number them.
    """

    rows: Arrangement
    programs: tuple[Words, ...]
    indices: tuple[Words, ...]

    def n_phases(self, kernel: str) -> int:
        """Phases of a kernel's program."""
        return int(self.programs[KERNELS.index(kernel)][0])

    @property
    def arrays(self) -> tuple[Words, ...]:
        """All that is uploaded."""
        return (*self.programs, *self.indices)


class Preparation:
    """Kernels of a model, as text, and the words of its mini-batches.

    kinds, modules: as last written. places: index arrays by their place in the header.
    n_written: how often all kernels were written.
    """

    kinds: ModelKinds
    modules: Mapping[str, Module]

    def __init__(
        self, plans: Mapping[int, Plan], memory: Memory, switches: Switches, tiling: Tiling
    ) -> None:
        self._plans, self._memory = plans, memory
        self._switches, self._tiling = switches, tiling
        self._several: set[Reader] = set()
        self._writers: dict[str, Writer] = {}
        self.places: dict[WordArray, int] = {}
        self.n_written = 0

    def prepare(self, rows: Arrangement) -> Prepared:
        """Write a mini-batch, and kernels anew if it has states that are first read twice."""
        indices = Indices(rows)
        if not self._writers:
            self._write_kernels()
        single = self.kinds.readers - self._several
        several = {reader for reader in single if not reader.is_single(indices)}
        if several:
            self._several |= several
            self._write_kernels()
        words = tuple([array.find(indices) for array in self.places])
        of_batches = batch_rows(rows.types, self._plans)
        writers = self._writers
        back = [run for run in rows.backward if run[0] == "backward"]
        lazy = [run for run in rows.backward if run[0] == "backward_lazy"]
        programs = (
            writers["forward"].write([*rows.forward, NO_RUN], of_batches, self._totals),
            writers["backward"].write(back, of_batches),
            self._lazy(lazy, of_batches),
            writers["update"].write([NO_RUN], of_batches, self._steps_of(words)),
        )
        return Prepared(rows, programs, words)

    def of_stage(self, prepared: Prepared, kernel: str, run: Run) -> Prepared:
        """The same mini-batch with a program of one kernel that does one stage alone."""
        of_batches = batch_rows(prepared.rows.types, self._plans)
        is_lazy = kernel == "backward_lazy"
        write = self._lazy if is_lazy else self._writers[kernel].write
        programs = list(prepared.programs)
        programs[KERNELS.index(kernel)] = write([run], of_batches)
        return replace(prepared, programs=tuple(programs))

    # --- once for a model ---

    def forget_kernels(self) -> None:
        """Write them anew for the next mini-batch."""
        self._writers.clear()

    def find_kinds(self) -> ModelKinds:
        """The kinds of all functions; tests change some."""
        memory = self._memory
        return kinds_of(
            self._plans, memory.shapes, memory.packs, self._several, fuse=self._switches.fusion
        )

    def _write_kernels(self) -> None:
        self.kinds = kinds = self.find_kinds()
        self.places, modules = {}, {}
        for kernel in KERNELS:
            mine = kinds.of_kernel(kernel)
            module = write_module(
                entries_of(mine, self._tiling),
                self._switches.precision,
                self.places,
                persistent=self._switches.persistent,
            )
            stages = kinds.stages_of(kernel) or {NO_RUN[0]: {}}
            modules[kernel] = module
            self._writers[kernel] = Writer.of(
                module, self._tiling, mine, stages, tuple(self._plans)
            )
        self.modules = modules
        self.n_written += 1
        self._totals = self._writers["forward"].kind_rows((kind, 0, 1) for kind in kinds.totals)
        at = kinds.sums_after
        groups = [[kind for kind in kinds.sums if not kind.adds]]
        groups += [[kind] for kind in kinds.sums if kind.adds]  # one behind the other
        sums = [(kind, at + k, 1) for k, group in enumerate(groups) for kind in group]
        self._sums = self._writers["backward_lazy"].kind_rows(sums)
        steps = [(kind, phase) for phase, kinds_ in enumerate(kinds.steps) for kind in kinds_]
        self._steps = self._writers["update"].kind_rows((kind, phase, 1) for kind, phase in steps)
        self._table_steps = [
            (k, self.places[kind.words] - N_SLOTS)
            for k, (kind, _) in enumerate(steps)
            if isinstance(kind, TableStepKind)
        ]

    # --- once a mini-batch ---

    def _lazy(self, runs: Sequence[Run], of_batches: BatchRows) -> Words:
        """With gradients of parameters, as early as what they sum up is there."""
        if not runs:
            return NOTHING
        return self._writers["backward_lazy"].write(runs, of_batches, self._sums)

    def _steps_of(self, words: Sequence[Words]) -> IntArray:
        """Steps of all parameters; of tables the rows that were looked up."""
        steps = self._steps.copy()
        for k, looked_up in self._table_steps:
            steps[k, 2] = len(words[looked_up])
        return steps
