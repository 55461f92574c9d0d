"""The backend's memory: NumPy arrays that are allocated once, grow when they must, are reused.

Gradients of looked-up rows stay where the backward pass left them until the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import address_of
from harness.contracts.model import Weights
from harness.engine.backend import Arrangement
from harness.engine.cpu_kernels import memory_kernels
from harness.engine.cpu_kernels.blas import N_HALVES, round_parameter
from harness.engine.cpu_kernels.memory_kernels import (
    N_OF_STEP,
    descend,
    transpose,
    update_rows,
)
from harness.engine.cpu_kernels.team import Table
from harness.engine.cpu_kernels.vectors import NAMES, load_products
from harness.engine.lowering import plan as plans
from harness.engine.lowering.plan import GROWTH, SHARED, Buffer, BufferName, Plan, Ref, Role
from harness.engine.rows.fields import Fields, Index
from harness.engine.rows.layout import Layout
from harness.engine.rows.row_order import AT_ONCE, N_EDGES, N
from harness.errors import UnsupportedTrial
from harness.vertex.folding import FoldedTable
from harness.vertex.operators import EDGE
from harness.vertex.subgraph.columns import Pack

_N_FLAGS = 64
LookedUp = Iterable[tuple[str, Index, NDArray[np.float32]]]  # table, rows, their gradients


class Parameters:
    """float32 arrays by name, and the gradients that a mini-batch adds up.

    A gradient is written by its first contribution (no zeroing) and added to by later ones, which
    a flag beside it tells. Gradients of looked-up rows stay where the backward pass left them.
    """

    def __init__(self, weights: Mapping[str, NDArray[np.float32]], n_threads: int) -> None:
        self.n_threads = n_threads
        self.values = {name: memory_kernels.aligned_copy(w) for name, w in weights.items()}
        self.loaded = tuple(weights)
        self.packs: dict[str, Pack] = {}
        self._dense: dict[str, NDArray[np.float32]] = {}
        self._written: dict[str, NDArray[np.int64]] = {}
        self._flags: list[NDArray[np.int64]] = []  # all of these, many in one array
        self._steps: Table = np.zeros((0, N_OF_STEP), dtype=np.int64)
        self._transposed: dict[str, NDArray[np.float32]] = {}
        self._halves: dict[str, NDArray[np.uint16]] = {}
        self._stale: set[str] = set()  # transposed copies of what has changed since
        self._stale_halves: set[str] = set()

    def fold(self, tables: Iterable[FoldedTable]) -> None:
        """Multiply tables with weights, once; their products are parameters like any other."""
        for folded in tables:
            if folded.name not in self.values:
                product = self.values[folded.table] @ self.values[folded.weight]
                self.values[folded.name] = memory_kernels.aligned_copy(product)

    def pack(self, packs: Iterable[Pack]) -> None:
        """Bring columns of parameters side by side; packs are parameters like any other.

        What is learned are the parameters that they are made of.
        """
        for pack in packs:
            if pack.name not in self.values:
                columns = [
                    self.values[p.parameter][..., p.start : p.start + p.width] for p in pack.parts
                ]
                self.values[pack.name] = memory_kernels.aligned_copy(
                    np.concatenate(columns, axis=-1)
                )
                self.packs[pack.name] = pack

    def gradient(self, name: str) -> NDArray[np.float32]:
        """The place of a parameter's gradient."""
        if name not in self._dense:
            self._dense[name] = memory_kernels.aligned_empty(self.values[name].shape)
        return self._dense[name]

    def transposed(self, name: str, *, up_to_date: bool) -> NDArray[np.float32]:
        """A transposed copy of a matrix, brought up to date where that is asked for."""
        value = self.values[name]
        if name not in self._transposed:
            self._transposed[name] = memory_kernels.aligned_empty(value.shape[::-1])
            self._stale.add(name)
        if up_to_date and name in self._stale:
            square = int(load_products()[1][NAMES.index("transpose_square")])
            n_rows, n_columns = value.shape
            out = address_of(self._transposed[name])
            transpose(square, address_of(value), n_rows, n_columns, out)
            self._stale.discard(name)
        return self._transposed[name]

    def half(self, name: str) -> NDArray[np.uint16]:
        """A copy of a matrix rounded to bfloat16, brought up to date."""
        value = self.values[name]
        if name not in self._halves:
            if sum(value.shape) > N_HALVES:
                raise UnsupportedTrial(
                    f"precision=bf16 rounds rows of at most {N_HALVES} numbers, and {name} is"
                    f" {' x '.join(map(str, value.shape))}; leave it out"
                )
            self._halves[name] = memory_kernels.aligned_empty(value.shape, np.uint16)
            self._stale_halves.add(name)
        if name in self._stale_halves:
            rows, width = value.shape
            round_parameter(
                address_of(value), 4 * width, rows, width, address_of(self._halves[name])
            )
            self._stale_halves.discard(name)
        return self._halves[name]

    def written(self, name: str) -> NDArray[np.int64]:
        """Whether it holds anything (n_threads,): every thread keeps count of its own part."""
        if name not in self._written:
            k = len(self._written) % _N_FLAGS
            if k == 0:
                self._flags.append(np.zeros((_N_FLAGS, self.n_threads), dtype=np.int64))
            self._written[name] = self._flags[-1][k]
        return self._written[name]

    def clear(self) -> None:
        """Forget the gradients of the last mini-batch."""
        for flags in self._flags:
            flags.fill(0)

    def update(self, learning_rate: float, looked_up: LookedUp) -> None:
        """One step of SGD on every parameter that has a gradient."""
        step = np.float32(learning_rate)
        self._stale.update(self._transposed)
        self._stale_halves.update(self._halves)
        plain = [name for name in self._written if name not in self.packs]
        if len(self._steps) != len(plain):
            self._steps = np.array([self._step_of(name) for name in plain], dtype=np.int64).reshape(
                -1, N_OF_STEP
            )
        descend(self._steps, step)
        for name in self.packs:
            if name in self._written and self._written[name][0]:
                gradient = self._dense[name]
                for part, at in self.packs[name].places():
                    value = self.values[part.parameter][..., part.start : part.start + part.width]
                    value -= step * gradient[..., at : at + part.width]
        for name, pack in self.packs.items():
            for part, at in pack.places():
                value = self.values[part.parameter][..., part.start : part.start + part.width]
                self.values[name][..., at : at + part.width] = value
        for table, rows, dy in looked_up:
            update_rows(self.values[table], rows, address_of(dy), dy.strides[0], step)

    def _step_of(self, name: str) -> tuple[int, ...]:
        """See harness.engine.cpu_kernels.memory_kernels.descend; none of these arrays moves."""
        value = self.values[name]
        arrays = self._written[name], value, self.gradient(name)
        return (*[address_of(array) for array in arrays], value.size)

    def gradients(self, looked_up: LookedUp) -> Weights:
        """Dense gradients of the parameters that were loaded."""
        result = {name: np.zeros_like(value) for name, value in self.values.items()}
        for name in self._holding():
            result[name] += self._dense[name]
        for table, rows, dy in looked_up:
            np.add.at(result[table], rows, dy)
        for name, pack in self.packs.items():
            for part, at in pack.places():
                mine = result[part.parameter][..., part.start : part.start + part.width]
                mine += result[name][..., at : at + part.width]
        return {name: result[name] for name in self.loaded}

    def _holding(self) -> list[str]:
        return [name for name, flag in self._written.items() if flag[0]]


Matrix = NDArray[np.float32]


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


@dataclass(frozen=True, slots=True)
class RowSum:
    """Of one function: of which table, what it pulls, and where the gradients of its rows are."""

    type_id: int
    table: str
    pulled: str
    gradient: Ref


def row_sums_of(plans: Mapping[int, Plan]) -> list[RowSum]:
    """Find them, once and not with every mini-batch."""
    found = []
    for type_id, plan in plans.items():
        for node in plan.row_sums():
            rows, dy = node.inputs
            found.append(RowSum(type_id, node.name, plan.nodes[rows].name, plan.refs[dy]))
    return found


def looked_up(
    row_sums: Iterable[RowSum], memory: Memory
) -> Iterator[tuple[str, Index, NDArray[np.float32]]]:
    """Tables, which of their rows were looked up, and the gradients of these."""
    layout = memory.layout
    for one in row_sums:
        if one.type_id in layout:
            index, done = layout.pulled(one.type_id, one.pulled), 0
            for values in memory.rows_of(one.type_id, one.gradient):
                yield one.table, index[done : done + len(values)], values
                done += len(values)
