"""Device memory, and the programs and int32 arrays of a mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.backend import Arrangement
from dynbatch.harness.engine.backends.cuda.kinds import Tiling
from dynbatch.harness.engine.backends.cuda.model import KERNELS, ModelKinds, find_model_kinds
from dynbatch.harness.engine.backends.cuda.module import KernelModule, list_entries, write_module
from dynbatch.harness.engine.backends.cuda.program import (
    KernelProgramWriter,
    build_batch_rows,
    find_depth,
)
from dynbatch.harness.engine.backends.cuda.text import N_SLOTS
from dynbatch.harness.engine.backends.cuda.words import (
    BufferOf,
    FloatArray,
    GradientOf,
    Indices,
    LearningRate,
    ParameterOf,
    PartialOf,
    Reader,
    TransposedOf,
    WordArray,
    Words,
)
from dynbatch.harness.engine.lowering.plan import GROWTH, SHARED, Plan, Ref, name_state_buffer
from dynbatch.harness.engine.rows.segments import Run
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.engine.torch_parameters import TorchParameters
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.vertex.folding import FoldedTable
from dynbatch.harness.vertex.operators import EDGE

MAX_ELEMENTS = 2**31 - 1  # kernels index arrays with int32


class DeviceMemory(TorchParameters):
    """Float arrays of one engine on one device.

    Tests override `allocate` to fill new memory with values that reveal missing writes.

    Args:
        on_move: called before a buffer is reallocated, so that its old address is not used again.
    """

    def __init__(self, weights: Weights, device: torch.device, on_move: Callable[[], None]) -> None:
        for name, weight in weights.items():
            _check_size(f"parameter {name}", weight.size, "hidden_size")
        super().__init__(weights, device)
        self.buffers: dict[BufferOf, Tensor] = {}
        self.widths: dict[BufferOf, int] = {}
        self._on_move = on_move
        self.plans: dict[int, Plan] = {}
        self.rows: Arrangement  # of the current mini-batch
        self._learning_rate, self._rate = torch.zeros(1, device=device), 0.0
        self._copies: dict[TransposedOf | PartialOf, Tensor] = {}
        self._shared: list[BufferOf] = []
        self._room: dict[int, tuple[int, int]] = {}  # capacity in rows and edges

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of all parameters, including packs and folded tables."""
        return {name: tuple(value.shape) for name, value in self.values.items()}

    def add(self, type_id: int, plan: Plan) -> None:
        """Add the buffers of one more function, empty, and its derived parameters."""
        self.plans[type_id] = plan
        self.fold(plan.tables)
        self.pack(plan.packs)
        for name, buffer in plan.buffers.items():
            key = BufferOf(SHARED if name.is_shared else type_id, name)
            self.widths.setdefault(key, buffer.width)
        for name, width in plan.read_states().items():
            self.widths.setdefault(BufferOf(SHARED, name), width)
        for key, width in self.widths.items():
            if key not in self.buffers:
                self.buffers[key] = self.allocate(1, width)  # an empty array has no address
        self._shared = [key for key in self.buffers if key.name.is_shared]

    def fold(self, tables: Iterable[FoldedTable]) -> None:
        """Compute folded tables (see TorchParameters).

        Raises:
            UnsupportedTrial: a table would be too large.
        """
        for folded in tables:
            table, weight = self.values[folded.table], self.values[folded.weight]
            n_elements = table.shape[0] * weight.shape[1]
            _check_size(f"table {folded.table} times {folded.weight}", n_elements, "hidden_size")
        super().fold(tables)

    def arrange(self, rows: Arrangement) -> None:
        """Set the rows of a mini-batch, and grow the buffers to hold them.

        Raises:
            UnsupportedTrial: a buffer would be too large.
        """
        self.rows = rows
        for type_id, geometry in rows.types.items():
            n_rows, n_edges = geometry.n_rows, geometry.n_edges
            room = self._room.get(type_id, (0, 0))
            if n_rows > room[0] or n_edges > room[1]:
                self._room.pop(type_id, None)  # unknown until done: allocations may fail
                for name, buffer in self.plans[type_id].buffers.items():
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
        _check_size(f"{key.name.of} ({n_rows} rows of {width})", wanted * width, "batch_size")
        self._on_move()
        self.buffers[key] = self.allocate(1, width)  # frees the old one first: both may not fit
        self.buffers[key] = self.allocate(wanted, width)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of later updates."""
        if rate != self._rate:
            self._learning_rate.fill_(rate)
            self._rate = rate

    def find_tensor(self, array: FloatArray) -> Tensor:
        """Return the tensor of a float array."""
        if isinstance(array, BufferOf):
            return self.buffers[array]
        if isinstance(array, ParameterOf):
            return self.values[array.name]
        if isinstance(array, GradientOf):
            return self.provide_gradient(array.name)
        if isinstance(array, LearningRate):
            return self._learning_rate
        if array not in self._copies:
            self._copies[array] = self._make_copy(array)
        return self._copies[array]

    def _make_copy(self, array: TransposedOf | PartialOf) -> Tensor:
        if isinstance(array, PartialOf):
            return self.allocate(array.height, array.parts * array.width)
        return self.values[array.name].t().contiguous()

    def collect_rows(self, type_id: int, ref: Ref) -> Tensor:
        """Return columns of all rows of a function (n, width), in the order of its batches."""
        geometry = self.rows.types.get(type_id)
        if geometry is None:
            return torch.zeros((0, ref.width), device=self.device)
        plan, columns = self.plans[type_id], slice(ref.start, ref.start + ref.width)
        buffer = plan.buffers[ref.buffer]
        if ref.buffer.is_gathered:
            states = self.buffers[BufferOf(SHARED, name_state_buffer(ref.buffer.of))]
            index = torch.from_numpy(geometry.gathers[plan.find_gathered_slots(ref.buffer)].index)
            return states[index.to(states.device)].reshape(-1, buffer.width)[:, columns]
        if not ref.buffer.is_shared:
            n = geometry.n_edges if buffer.domain == EDGE else geometry.n_rows
            return self.buffers[BufferOf(type_id, ref.buffer)][:n, columns]
        matrix = self.buffers[BufferOf(SHARED, ref.buffer)]
        first_rows = geometry.first_row.tolist()
        sizes = np.diff(geometry.starts).tolist()
        pieces = zip(first_rows, sizes, strict=True)
        return torch.cat([matrix[first : first + n, columns] for first, n in pieces])

    def yield_row_gradients(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield tables, the rows that were looked up, and the gradients of these rows."""
        for type_id, plan in self.plans.items():
            geometry = self.rows.types.get(type_id)
            if geometry is not None:
                for row_sum in plan.list_row_sums():
                    rows = torch.from_numpy(geometry.pulls[row_sum.pulled])
                    yield row_sum.table, rows, self.collect_rows(type_id, row_sum.gradient)


def _check_size(what: str, n_elements: int, option: str) -> None:
    """Check that int32 can index an array.

    Raises:
        UnsupportedTrial: the array is too large.
    """
    if n_elements > MAX_ELEMENTS:
        raise UnsupportedTrial(
            f"{what}: expected at most {MAX_ELEMENTS} elements, got {n_elements};"
            f" set a smaller {option}, or use backend=stepwise"
        )


NOTHING: Words = np.zeros(2, dtype=np.int32)  # a program without phases


@dataclass(frozen=True, eq=False, slots=True)
class PreparedMiniBatch:
    """Mini-batch as int32 arrays.

    Attributes:
        programs: one for each kernel.
        ahead: the forward kernel's program of operators that run ahead on a second stream.
        indices: arrays that follow the programs, in the order of Preparation.places.
    """

    programs: tuple[Words, ...]
    ahead: Words
    indices: tuple[Words, ...]

    def count_phases(self, kernel: str) -> int:
        """Return the number of phases of a kernel's program."""
        return int(self.programs[KERNELS.index(kernel)][0])

    @property
    def arrays(self) -> tuple[Words, ...]:
        """All arrays to upload."""
        return (*self.programs, self.ahead, *self.indices)


class Preparation:
    """Kernels of a model, as source, and the int32 arrays of its mini-batches."""

    kinds: ModelKinds
    modules: Mapping[str, KernelModule]

    def __init__(self, memory: DeviceMemory, switches: Switches, tiling: Tiling) -> None:
        self._memory, self._switches, self._tiling = memory, switches, tiling
        self._several: set[Reader] = set()
        self._writers: dict[str, KernelProgramWriter] = {}
        self.places: dict[WordArray, int] = {}
        self.lag: int | None = None  # see launching.Launch

    def prepare(self, rows: Arrangement) -> PreparedMiniBatch:
        """Write the programs and index arrays of a mini-batch.

        Kernels are written before the first mini-batch, and again when a reader first reads a state
        more than once.
        """
        indices = Indices(rows)
        if not self._writers:
            self._write_kernels()
        single = self.kinds.readers - self._several
        several = {reader for reader in single if not reader.is_single(indices)}
        if several:
            self._several |= several
            self._write_kernels()
        arrays = tuple([array.find(indices) for array in self.places])
        of_batches = build_batch_rows(rows.types, self._memory.plans)
        writers = self._writers
        back = [run for run in rows.backward if run[0] == "backward"]
        lazy = [run for run in rows.backward if run[0] == "backward_lazy"]

        def count(array: WordArray) -> int:
            return len(arrays[self.places[array] - N_SLOTS])

        def write_with_others(kernel: str, runs: Sequence[Run]) -> Words:
            others = writers[kernel].make_kind_rows(self.kinds.unbatched[kernel], count)
            return writers[kernel].write(runs, of_batches, others)

        is_backward = bool(rows.backward)
        if self.lag is None:
            forward, ahead = writers["forward"].write(rows.forward, of_batches), NOTHING
        else:
            forward, ahead = writers["forward"].write_apart(rows.forward, of_batches, self.lag)
        programs = (
            forward,
            writers["backward"].write(back, of_batches),
            write_with_others("backward_lazy", lazy) if is_backward else NOTHING,
            write_with_others("update", ()) if is_backward else NOTHING,
        )
        return PreparedMiniBatch(programs, ahead, arrays)

    # --- once per model ---

    def forget_kernels(self) -> None:
        """Discard the kernels, which are written again for the next mini-batch."""
        self._writers.clear()

    def find_kinds(self) -> ModelKinds:
        """Return the kinds of all functions; tests modify some."""
        shapes = self._memory.shapes
        return find_model_kinds(
            self._memory.plans, shapes, self._memory.packs, self._several, self._tiling,
            fuse=self._switches.fusion,
        )  # fmt: skip

    def _write_kernels(self) -> None:
        self.kinds = kinds = self.find_kinds()
        self.places, modules = {}, {}
        for kernel in KERNELS:
            mine = kinds.list_kinds(kernel)
            entries = list_entries(mine, self._tiling)
            module = write_module(entries, self._switches.precision, self.places)
            modules[kernel] = module
            self._writers[kernel] = KernelProgramWriter.from_module(
                module, self._tiling, mine, kinds.select_stages(kernel), tuple(self._memory.plans)
            )
        self.modules = modules
        depth = find_depth(kinds.stages["eager"])
        self.lag = depth - 1 if self._switches.streams and depth else None
