"""The backend's memory: NumPy arrays that are allocated once, grow when they must, are reused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from harness.engine.backend import Arrangement
from harness.engine.backends.compiled.parameters import Parameters
from harness.engine.cpu_kernels import memory_kernels
from harness.engine.lowering import plan as plans
from harness.engine.lowering.plan import Buffer, BufferName, Plan, Ref, Role
from harness.engine.rows.counting import AT_ONCE, N_EDGES, N
from harness.engine.rows.fields import Fields
from harness.engine.rows.geometry import Index
from harness.engine.rows.layout import Layout
from harness.vertex.operators import EDGE

Matrix = NDArray[np.float32]
GROWTH = 1.25  # so that slightly larger mini-batches do not reallocate each time
SHARED = 0  # the type id under which buffers of all functions are kept


class Memory:
    """Buffers by function and name, parameters, and the mini-batch's rows."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.plans: dict[int, Plan] = {}
        self.buffers: dict[tuple[int, BufferName], Matrix] = {}
        self.n_arranged = 0  # mini-batches so far; no array moves until the next one
        self.n_grown = 0  # how often buffers were made anew
        self._rows: Arrangement | None = None
        self._make_rows: Callable[[], Arrangement] | None = None
        self._filled: dict[tuple[int, BufferName], NDArray[np.int64]] = {}
        self._shared: list[tuple[tuple[int, BufferName], str, int]] = []  # and which rows fit
        self._gradients: list[tuple[str, Matrix]] = []  # of states
        self._known_for = 0  # how often buffers had been made anew when these were noted
        self._scattered: list[int] | None = None
        self._fields: Fields | None = None
        self._room: Index = np.zeros((0, 3), dtype=np.int64)  # of what Layout.room_wanted says

    def add(self, new: Mapping[int, Plan]) -> None:
        """Take the plans of more functions, and make their buffers, empty."""
        self.n_grown += 1
        for type_id, plan in new.items():
            self.plans[type_id] = plan
            self.parameters.fold(plan.tables)
            self.parameters.pack(plan.packs)
            for name, buffer in plan.buffers.items():
                key = (SHARED if name.is_shared else type_id, name)
                if key not in self.buffers:
                    self.buffers[key] = np.empty((0, buffer.width), dtype=np.float32)
            for name, width in plan.read_states().items():
                # Of a state that no function of this engine scatters there are no rows.
                self.buffers.setdefault((SHARED, name), np.empty((0, width), dtype=np.float32))
        self._know_shared()

    def arrange(self, rows: Arrangement) -> None:
        """Take a mini-batch's rows, and let every buffer hold those of its kind."""
        self._rows = rows
        self.n_arranged += 1
        for flags in self._filled.values():
            flags.fill(0)
        layout, fits = rows.types, self.room_for(rows.types.fields)
        wanted = layout.room_wanted
        if (wanted > fits).any():
            for type_id in layout:
                function = layout.fields.function(type_id)
                self._make_room(type_id, wanted[function], fits[function])
            np.maximum(fits, wanted, out=fits)
        self._scattered = None
        for key, of, room in self._shared:
            if (n_rows := rows.n_rows.get(of, 0)) > room:
                self._grow(key, n_rows, rows.kept_rows.get(of, 0))
        if self.n_grown != self._known_for:
            self._know_shared()

    def arrange_later(self, make: Callable[[], Arrangement]) -> None:
        """Take the rows of a round that has room; what says where they are is made if one asks."""
        self.planned_later(make)
        for flags in self._filled.values():
            flags.fill(0)

    def planned_later(self, make: Callable[[], Arrangement]) -> None:
        """The same behind rounds that have run, which cleared the flags themselves."""
        self._rows, self._make_rows = None, make
        self.n_arranged += 1
        self._scattered = None

    def flags(self) -> list[NDArray[np.int64]]:
        """Those that are cleared before every round."""
        return list(self._filled.values())

    def room_for(self, fields: Fields) -> Index:
        """How many rows fit of what Layout.room_wanted says."""
        if fields is not self._fields:
            self._fields = fields
            self._room = np.zeros((fields.n_functions, 3), dtype=np.int64)
        return self._room

    def state_rooms(self) -> list[tuple[str, int]]:
        """Of every buffer of states its state, and how many rows fit."""
        return [(of, room) for _, of, room in self._shared]

    def _know_shared(self) -> None:
        """Note how many rows of states fit: to find a buffer by its key takes a microsecond."""
        keys = [key for key in self.buffers if key[1].is_shared]
        self._shared = [(key, key[1].of, len(self.buffers[key])) for key in keys]
        self._gradients = [
            (key[1].of, self.buffers[key]) for key in keys if key[1].role is Role.GRADIENT
        ]
        self._known_for = self.n_grown

    @property
    def scattered(self) -> list[int]:
        """See Layout."""
        if self._scattered is None:
            self._scattered = self.layout.scattered
        return self._scattered

    def _make_room(self, type_id: int, wanted: Index, room: Index) -> None:
        if (wanted <= room).all():
            return
        for name, buffer in self.plans[type_id].buffers.items():
            if not name.is_shared and buffer.memory is not plans.Memory.CHILDREN:
                self._grow((type_id, name), int(wanted[_kind_of(buffer)]))

    def _grow(self, key: tuple[int, BufferName], n_rows: int, n_kept: int = 0) -> None:
        if n_rows > len(self.buffers[key]):
            self.buffers[key] = grown(self.buffers[key], n_rows, n_kept)
            self.n_grown += 1

    @property
    def layout(self) -> Layout:
        """Where the rows of this mini-batch are."""
        if self._rows is None:
            assert self._make_rows is not None, "a mini-batch is arranged first"
            self._rows = self._make_rows()
        return self._rows.types

    def filled(self, type_id: int, name: BufferName) -> NDArray[np.int64]:
        """See FilledOf."""
        key = (type_id, name)
        if key not in self._filled:
            self._filled[key] = np.zeros(self.parameters.n_threads, dtype=np.int64)
        return self._filled[key]

    def states(self, state: str, rows: NDArray[np.int64]) -> Matrix:
        """Copies of some rows of a state."""
        found: Matrix = self.buffers[SHARED, plans.state_buffer(state)][rows]
        return found

    def clear_gradients(self) -> None:
        """Zero those of states; those of parameters are written over."""
        self.parameters.clear()
        if self._rows is not None:
            for of, gradient in self._gradients:
                gradient[: self._rows.n_rows[of]].fill(0.0)

    def rows_of(self, type_id: int, ref: Ref) -> list[Matrix]:
        """Views of all rows of a function that hold these columns, batch by batch if need be."""
        layout = self.layout
        if type_id not in layout:
            return []
        columns = slice(ref.start, ref.start + ref.width)
        if ref.buffer.is_gathered:  # its own buffer lacks what is read in place
            states = self.buffers[SHARED, plans.state_buffer(ref.buffer.of)]
            index = layout[type_id].gathers[self.plans[type_id].gathered(ref.buffer)].index
            width = self.plans[type_id].buffers[ref.buffer].width
            return [states[index].reshape(-1, width)[:, columns]]
        matrix = self.buffers[SHARED if ref.buffer.is_shared else type_id, ref.buffer]
        buffer = self.plans[type_id].buffers[ref.buffer]
        if buffer.memory is plans.Memory.SCRATCH:
            raise ValueError(f"{ref.buffer} is used anew by every batch; it cannot be read")
        if buffer.memory is plans.Memory.SAVED:
            n = layout[type_id].n_edges if buffer.domain == EDGE else layout.n_of(type_id)
            return [matrix[:n, columns]]
        geometry = layout[type_id]
        starts, first_row = geometry.rows.starts, geometry.rows.first_row
        sizes = (starts[1:] - starts[:-1]).tolist()
        if geometry.contiguous:
            sizes, first_row = [geometry.rows.n], first_row[:1]
        return [
            matrix[first : first + n, columns]
            for first, n in zip(first_row.tolist(), sizes, strict=True)
        ]


def grown(matrix: Matrix, n_rows: int, n_kept: int = 0) -> Matrix:
    """A larger matrix, with the first rows of what this one held."""
    larger = memory_kernels.aligned_empty((int(n_rows * GROWTH) + 1, matrix.shape[1]))
    larger[:n_kept] = matrix[:n_kept]
    return larger


def _kind_of(buffer: Buffer) -> int:
    """Which of Layout.room_wanted a buffer needs: all rows, those at once, or edges."""
    if buffer.domain == EDGE:
        return N_EDGES
    return N if buffer.memory is plans.Memory.SAVED else AT_ONCE
