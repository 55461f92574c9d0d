"""The backend's memory: NumPy arrays that are allocated once, grow when they must, are reused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from harness.engine.backend import Arrangement
from harness.engine.backends.compiled.parameters import Parameters
from harness.engine.lowering import plan as plans
from harness.engine.lowering.plan import Buffer, BufferName, Plan, Ref, Role
from harness.engine.rows.geometry import TypeGeometry
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
        self._filled: dict[tuple[int, BufferName], NDArray[np.int64]] = {}
        self._shared: list[tuple[int, BufferName]] = []  # of all functions
        self._gradients: list[tuple[int, BufferName]] = []  # of these, those of states
        self._room: dict[int, tuple[int, int, int]] = {}  # rows, rows of a batch, edges that fit

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
        self._shared = [key for key in self.buffers if key[1].is_shared]
        self._gradients = [key for key in self._shared if key[1].role is Role.GRADIENT]

    def arrange(self, rows: Arrangement) -> None:
        """Take a mini-batch's rows, and let every buffer hold those of its kind."""
        self._rows = rows
        self.n_arranged += 1
        for flags in self._filled.values():
            flags.fill(0)
        for type_id, geometry in rows.types.items():
            self._make_room(type_id, geometry)
        for key in self._shared:
            of = key[1].of
            self._grow(key, rows.n_rows.get(of, 0), rows.kept_rows.get(of, 0))

    def _make_room(self, type_id: int, geometry: TypeGeometry) -> None:
        n, n_at_once, n_edges = geometry.rows.n, geometry.n_at_once, geometry.n_edges
        room = self._room.get(type_id, (0, 0, 0))
        if n <= room[0] and n_at_once <= room[1] and n_edges <= room[2]:
            return
        wanted = (n, n_at_once, n_edges)
        self._room[type_id] = (
            max(wanted[0], room[0]), max(wanted[1], room[1]), max(wanted[2], room[2])
        )  # fmt: skip
        for name, buffer in self.plans[type_id].buffers.items():
            if not name.is_shared:
                self._grow((type_id, name), _n_rows(buffer, wanted))

    def _grow(self, key: tuple[int, BufferName], n_rows: int, n_kept: int = 0) -> None:
        if n_rows > len(self.buffers[key]):
            self.buffers[key] = grown(self.buffers[key], n_rows, n_kept)
            self.n_grown += 1

    def geometry(self, type_id: int) -> TypeGeometry | None:
        """The rows of a function, or None where the mini-batch has none."""
        return None if self._rows is None else self._rows.types.get(type_id)

    @property
    def geometries(self) -> Mapping[int, TypeGeometry]:
        """The rows of all functions that have some."""
        return {} if self._rows is None else self._rows.types

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
            for key in self._gradients:
                self.buffers[key][: self._rows.n_rows[key[1].of]].fill(0.0)

    def rows_of(self, type_id: int, ref: Ref) -> list[Matrix]:
        """Views of all rows of a function that hold these columns, batch by batch if need be."""
        geometry = self.geometry(type_id)
        if geometry is None:
            return []
        columns = slice(ref.start, ref.start + ref.width)
        if ref.buffer.is_gathered:  # its own buffer lacks what is read in place
            states = self.buffers[SHARED, plans.state_buffer(ref.buffer.of)]
            index = geometry.gathers[self.plans[type_id].gathered(ref.buffer)].index
            width = self.plans[type_id].buffers[ref.buffer].width
            return [states[index].reshape(-1, width)[:, columns]]
        matrix = self.buffers[SHARED if ref.buffer.is_shared else type_id, ref.buffer]
        buffer = self.plans[type_id].buffers[ref.buffer]
        if buffer.memory is plans.Memory.SCRATCH:
            raise ValueError(f"{ref.buffer} is used anew by every batch; it cannot be read")
        if buffer.memory is plans.Memory.SAVED:
            n = geometry.n_edges if buffer.domain == EDGE else geometry.rows.n
            return [matrix[:n, columns]]
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
    larger = np.empty((int(n_rows * GROWTH) + 1, matrix.shape[1]), dtype=np.float32)
    larger[:n_kept] = matrix[:n_kept]
    return larger


def _n_rows(buffer: Buffer, wanted: tuple[int, int, int]) -> int:
    n, largest, n_edges = wanted
    if buffer.domain == EDGE:
        return n_edges
    return n if buffer.memory is plans.Memory.SAVED else largest
