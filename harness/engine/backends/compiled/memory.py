"""Memory of the backend: NumPy arrays that are allocated once, grow on demand and are reused.

Gradients of looked-up rows stay in the buffers of the backward pass until the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import get_address
from dynbatch.harness.engine.backend import Arrangement
from dynbatch.harness.engine.cpu_kernels import memory_kernels
from dynbatch.harness.engine.cpu_kernels.memory_kernels import (
    N_OF_STEP,
    pack_columns,
    transpose,
    update_parameters,
    update_rows,
)
from dynbatch.harness.engine.cpu_kernels.own_matmuls import count_padded
from dynbatch.harness.engine.cpu_kernels.team import Table
from dynbatch.harness.engine.cpu_kernels.vectors import NAMES, load_matmul_kernels
from dynbatch.harness.engine.lowering import plan as plans
from dynbatch.harness.engine.lowering.plan import (
    GROWTH,
    SHARED,
    Buffer,
    BufferName,
    Plan,
    Ref,
    Role,
    RowSum,
)
from dynbatch.harness.engine.parameters import LookedUp, ParameterMemory
from dynbatch.harness.engine.rows.fields import Fields, Index
from dynbatch.harness.engine.rows.layout import Layout
from dynbatch.harness.engine.rows.row_order import AT_ONCE, N_EDGES, N
from dynbatch.harness.vertex.operators import EDGE

_N_FLAGS = 64
Matrix = NDArray[np.float32]


class Parameters(ParameterMemory[Matrix]):
    """Parameters as float32 arrays by name, and their gradients of one mini-batch.

    The first contribution to a gradient overwrites it (so that it is never zeroed), and later ones
    are added; a flag shows whether there was a first one. Gradients of looked-up rows stay in the
    buffers of the backward pass.

    Attributes:
        has_own_kernels: whether the engine's own kernels multiply, which read packed copies.
        was_updated: whether a step has changed the parameters, which makes copies outdated.
    """

    def __init__(
        self,
        weights: Mapping[str, NDArray[np.float32]],
        n_threads: int,
        *,
        has_own_kernels: bool = False,
    ) -> None:
        super().__init__({name: memory_kernels.copy_aligned(w) for name, w in weights.items()})
        self.n_threads, self.has_own_kernels = n_threads, has_own_kernels
        self._written: dict[str, NDArray[np.int64]] = {}
        self._flags: list[NDArray[np.int64]] = []  # memory of all flags, many in one array
        self._steps: Table = np.zeros((0, N_OF_STEP), dtype=np.int64)
        self._transposed: dict[str, NDArray[np.float32]] = {}
        self._packed: dict[tuple[str, bool], NDArray[np.float32]] = {}
        self._stale: set[str | tuple[str, bool]] = set()  # outdated copies
        self.was_updated = False

    def allocate(self, *shape: int) -> Matrix:
        """Allocate an uninitialized array of floats."""
        return memory_kernels.allocate_aligned(shape)

    def to_numpy(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself."""
        return values

    def keep(self, product: Matrix) -> Matrix:
        """Return an aligned copy."""
        return memory_kernels.copy_aligned(product)

    def provide_transposed(self, name: str, *, up_to_date: bool) -> NDArray[np.float32]:
        """Return a transposed copy of a matrix, updated on request."""
        value = self.values[name]
        if name not in self._transposed:
            self._transposed[name] = memory_kernels.allocate_aligned(value.shape[::-1])
            self._stale.add(name)
        if up_to_date and name in self._stale:
            square = int(load_matmul_kernels()[1][NAMES.index("transpose_square")])
            n_rows, n_columns = value.shape
            out = get_address(self._transposed[name])
            transpose(square, get_address(value), n_rows, n_columns, out)
            self._stale.discard(name)
        return self._transposed[name]

    def provide_packed(
        self, name: str, is_transposed: bool, *, up_to_date: bool
    ) -> NDArray[np.float32]:
        """Return a copy of W or W^T that is packed for the engine's kernels, updated on request."""
        key, value = (name, is_transposed), self.values[name]
        if key not in self._packed:
            k, m = value.shape[::-1] if is_transposed else value.shape
            self._packed[key] = memory_kernels.allocate_aligned((k, count_padded(m)))
            self._stale.add(key)
        if up_to_date and key in self._stale:
            source = self.provide_transposed(name, up_to_date=True) if is_transposed else value
            n_rows, n_columns = source.shape
            pack_columns(get_address(source), n_rows, n_columns, get_address(self._packed[key]))
            self._stale.discard(key)
        return self._packed[key]

    def provide_written_flags(self, name: str) -> NDArray[np.int64]:
        """Return the flags (n_threads,) that a gradient was written; each thread sets its own."""
        if name not in self._written:
            k = len(self._written) % _N_FLAGS
            if k == 0:
                self._flags.append(np.zeros((_N_FLAGS, self.n_threads), dtype=np.int64))
            self._written[name] = self._flags[-1][k]
        return self._written[name]

    def clear(self) -> None:
        """Clear the gradients of the last mini-batch."""
        for flags in self._flags:
            flags.fill(0)

    def update(self, learning_rate: float, looked_up: LookedUp) -> None:
        """Take one step of SGD on every parameter that has a gradient."""
        step = np.float32(learning_rate)
        self._stale.update(self._transposed, self._packed)
        self.was_updated = True
        plain = [name for name in self._written if name not in self.packs]
        if len(self._steps) != len(plain):
            self._steps = np.array(
                [self._make_step(name) for name in plain], dtype=np.int64
            ).reshape(-1, N_OF_STEP)
        update_parameters(self._steps, step)
        for name in self.packs:
            if name in self._written and self._written[name][0]:
                for part, at in self.packs[name].iterate_parts():
                    value = self.view_columns(part.parameter, part.start, part.width)
                    value -= step * self.dense[name][..., at : at + part.width]
        for name in self.packs:
            self.refresh_pack(name)
        for table, rows, dy in looked_up:
            update_rows(self.values[table], rows, get_address(dy), dy.strides[0], step)

    def _make_step(self, name: str) -> tuple[int, ...]:
        """Return the arguments of memory_kernels.update_parameters for a parameter.

        None of these arrays is ever reallocated.
        """
        value = self.values[name]
        arrays = self._written[name], value, self.provide_gradient(name)
        return (*[get_address(array) for array in arrays], value.size)

    def list_written(self) -> list[str]:
        """Return the parameters whose gradients were written in this mini-batch."""
        return [name for name, flag in self._written.items() if flag[0]]


class Memory:
    """Buffers by function and name, parameters, and the mini-batch's rows."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.plans: dict[int, Plan] = {}
        self.buffers: dict[tuple[int, BufferName], Matrix] = {}
        self.n_arranged = 0  # mini-batches so far; no array moves between two of them
        self.n_grown = 0  # number of reallocations of buffers
        self._rows: Arrangement | None = None
        self._make_rows: Callable[[], Arrangement] | None = None
        self._filled: dict[tuple[int, BufferName], NDArray[np.int64]] = {}
        self._row_sums: list[tuple[int, RowSum]] = []
        self._shared: list[tuple[tuple[int, BufferName], str, int]] = []  # with state and capacity
        self._gradients: list[tuple[str, Matrix]] = []  # of states
        self._known_for = 0  # n_grown when `_shared` and `_gradients` were set
        self._scattered: list[int] | None = None
        self._fields: Fields | None = None
        self._room: Index = np.zeros((0, 3), dtype=np.int64)  # capacities for Layout.room_wanted

    def add(self, new: Mapping[int, Plan]) -> None:
        """Add the plans of more functions, with empty buffers."""
        self.n_grown += 1
        for type_id, plan in new.items():
            self.plans[type_id] = plan
            self.parameters.fold(plan.tables)
            self.parameters.pack(plan.packs)
            self._row_sums += [(type_id, row_sum) for row_sum in plan.list_row_sums()]
            for name, buffer in plan.buffers.items():
                key = (SHARED if name.is_shared else type_id, name)
                if key not in self.buffers:
                    self.buffers[key] = np.empty((0, buffer.width), dtype=np.float32)
            for name, width in plan.read_states().items():
                # A state that no function of this engine scatters has no rows.
                self.buffers.setdefault((SHARED, name), np.empty((0, width), dtype=np.float32))
        self._cache_shared()

    def arrange(self, rows: Arrangement) -> None:
        """Set the rows of a mini-batch, and extend buffers to hold them."""
        self._rows = rows
        self.n_arranged += 1
        for flags in self._filled.values():
            flags.fill(0)
        layout, fits = rows.types, self.provide_capacities(rows.types.fields)
        wanted = layout.room_wanted
        if (wanted > fits).any():
            for type_id in layout:
                function = layout.fields.index_function(type_id)
                self._make_room(type_id, wanted[function], fits[function])
            np.maximum(fits, wanted, out=fits)
        self._scattered = None
        for key, state, room in self._shared:
            if (n_rows := rows.n_rows.get(state, 0)) > room:
                self._grow(key, n_rows, rows.kept_rows.get(state, 0))
        if self.n_grown != self._known_for:
            self._cache_shared()

    def set_rows_later(self, make: Callable[[], Arrangement]) -> None:
        """Set the rows of segments that have run already and have cleared the flags."""
        self._rows, self._make_rows = None, make
        self.n_arranged += 1
        self._scattered = None

    def list_flags(self) -> list[NDArray[np.int64]]:
        """Return the flags that are cleared before every segment."""
        return list(self._filled.values())

    def provide_capacities(self, fields: Fields) -> Index:
        """Return the capacities for Layout.room_wanted."""
        if fields is not self._fields:
            self._fields = fields
            self._room = np.zeros((fields.n_functions, 3), dtype=np.int64)
        return self._room

    def list_state_rooms(self) -> list[tuple[str, int]]:
        """Return the state of every buffer of states, and its capacity in rows."""
        return [(state, room) for _, state, room in self._shared]

    def _cache_shared(self) -> None:
        """Cache the capacities of buffers of states.

        A lookup by key takes about a microsecond.
        """
        keys = [key for key in self.buffers if key[1].is_shared]
        self._shared = [(key, key[1].of, len(self.buffers[key])) for key in keys]
        self._gradients = [
            (key[1].of, self.buffers[key]) for key in keys if key[1].role is Role.GRADIENT
        ]
        self._known_for = self.n_grown

    @property
    def scattered(self) -> list[int]:
        """Functions whose states are not consecutive, see Layout."""
        if self._scattered is None:
            self._scattered = self.layout.scattered
        return self._scattered

    def _make_room(self, type_id: int, wanted: Index, room: Index) -> None:
        if (wanted <= room).all():
            return
        for name, buffer in self.plans[type_id].buffers.items():
            if not name.is_shared and buffer.memory is not plans.MemoryKind.CHILDREN:
                self._grow((type_id, name), int(wanted[_find_room_column(buffer)]))

    def _grow(self, key: tuple[int, BufferName], n_rows: int, n_kept: int = 0) -> None:
        if n_rows > len(self.buffers[key]):
            self.buffers[key] = enlarge_matrix(self.buffers[key], n_rows, n_kept)
            self.n_grown += 1

    @property
    def layout(self) -> Layout:
        """Layout of this mini-batch."""
        if self._rows is None:
            assert self._make_rows is not None, "no mini-batch is arranged"
            self._rows = self._make_rows()
        return self._rows.types

    def provide_filled_flags(self, type_id: int, name: BufferName) -> NDArray[np.int64]:
        """Return the flags FILLED of a gather's buffer, see ArgumentKind."""
        key = (type_id, name)
        if key not in self._filled:
            self._filled[key] = np.zeros(self.parameters.n_threads, dtype=np.int64)
        return self._filled[key]

    def copy_states(self, state: str, rows: NDArray[np.int64]) -> Matrix:
        """Return copies of some rows of a state."""
        values: Matrix = self.buffers[SHARED, plans.name_state_buffer(state)][rows]
        return values

    def clear_gradients(self) -> None:
        """Zero the gradients of states; those of parameters are overwritten."""
        self.parameters.clear()
        if self._rows is not None:
            for state, gradient in self._gradients:
                gradient[: self._rows.n_rows[state]].fill(0.0)

    def view_rows(self, type_id: int, ref: Ref) -> list[Matrix]:
        """Return views of these columns for all rows of a function, batch by batch if necessary.

        Raises:
            ValueError: Every batch overwrites this buffer.
        """
        layout = self.layout
        if type_id not in layout:
            return []
        columns = slice(ref.start, ref.start + ref.width)
        if ref.buffer.is_gathered:  # its buffer is without the rows that are read in place
            states = self.buffers[SHARED, plans.name_state_buffer(ref.buffer.of)]
            index = (
                layout[type_id].gathers[self.plans[type_id].find_gathered_slots(ref.buffer)].index
            )
            width = self.plans[type_id].buffers[ref.buffer].width
            return [states[index].reshape(-1, width)[:, columns]]
        matrix = self.buffers[SHARED if ref.buffer.is_shared else type_id, ref.buffer]
        buffer = self.plans[type_id].buffers[ref.buffer]
        if buffer.memory is plans.MemoryKind.SCRATCH:
            raise ValueError(f"cannot read {ref.buffer}: every batch overwrites it")
        if buffer.memory is plans.MemoryKind.SAVED:
            n = layout[type_id].n_edges if buffer.domain == EDGE else layout.count_rows(type_id)
            return [matrix[:n, columns]]
        geometry = layout[type_id]
        starts, first_row = geometry.starts, geometry.first_row
        sizes = (starts[1:] - starts[:-1]).tolist()
        if geometry.contiguous:
            sizes, first_row = [geometry.n_rows], first_row[:1]
        return [
            matrix[first : first + n, columns]
            for first, n in zip(first_row.tolist(), sizes, strict=True)
        ]

    def yield_row_gradients(self) -> Iterator[tuple[str, Index, Matrix]]:
        """Yield the tables, their looked-up rows, and the gradients of these rows."""
        for type_id, row_sum in self._row_sums:
            if type_id in self.layout:
                index, done = self.layout.select_pulled(type_id, row_sum.pulled), 0
                for values in self.view_rows(type_id, row_sum.gradient):
                    yield row_sum.table, index[done : done + len(values)], values
                    done += len(values)


def enlarge_matrix(matrix: Matrix, n_rows: int, n_kept: int = 0) -> Matrix:
    """Return a larger matrix with the first n_kept rows of this one."""
    larger = memory_kernels.allocate_aligned((int(n_rows * GROWTH) + 1, matrix.shape[1]))
    larger[:n_kept] = matrix[:n_kept]
    return larger


def _find_room_column(buffer: Buffer) -> int:
    """Return the column of Layout.room_wanted for a buffer: all rows, rows per call, or edges."""
    if buffer.domain == EDGE:
        return N_EDGES
    return N if buffer.memory is plans.MemoryKind.SAVED else AT_ONCE
