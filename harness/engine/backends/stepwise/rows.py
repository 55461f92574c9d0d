"""Memory of one vertex function for a mini-batch, and views of a step's operands in it.

Buffers are allocated once, grow on demand and are reused; indices are uploaded in one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.engine.backend import Tally
from dynbatch.harness.engine.backends.stepwise.parameters import StepwiseParameters
from dynbatch.harness.engine.lowering.plan import (
    GROWTH,
    BufferName,
    MemoryKind,
    Plan,
    Ref,
    Slots,
    count_slots,
    name_state_buffer,
)
from dynbatch.harness.engine.rows.fields import NOT_CONTIGUOUS, Index, TypeGeometry
from dynbatch.harness.vertex.operators import EDGE


def allocate(shape: tuple[int, int], device: torch.device) -> Tensor:
    """Allocate an uninitialized tensor of floats."""
    return torch.empty(shape, device=device)


class Matrix:
    """Buffer of rows."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.width, self.device = width, device
        self.tensor = allocate((0, width), device)
        self.columns: dict[tuple[int, int], Tensor] = {}

    def ensure(self, n_rows: int, n_kept: int = 0) -> None:
        """Extend the buffer to at least n_rows rows, with its first n_kept rows."""
        if n_rows <= len(self.tensor):
            return
        self.columns.clear()
        kept = self.tensor[:n_kept].clone()
        self.tensor = allocate((0, self.width), self.device)  # both may not fit
        self.tensor = allocate((int(n_rows * GROWTH) + 1, self.width), self.device)
        self.tensor[:n_kept] = kept

    def slice(self, start: int, width: int) -> Tensor:
        """Return all rows of some columns, a cached view."""
        key = (start, width)
        if key not in self.columns:
            self.columns[key] = self.tensor[:, start : start + width]
        return self.columns[key]


@dataclass(frozen=True, eq=False, slots=True)
class TypeIndices:
    """Indices of one vertex function on the device.

    Attributes:
        owner: (n_edges,), the row of every edge's vertex; None if there are no edges.
        owner_in_batch: The same, counted from the first row of the batch.
    """

    pulls: Mapping[str, Tensor]
    gathers: Mapping[Slots, Tensor]
    owner: Tensor | None = None
    owner_in_batch: Tensor | None = None


def upload(types: Mapping[int, TypeGeometry], device: torch.device) -> dict[int, TypeIndices]:
    """Copy the indices of all functions to the device."""
    arrays = [array for geometry in types.values() for array in _list_arrays(geometry)]
    if not arrays:
        return {}
    joined = torch.from_numpy(np.concatenate(arrays, dtype=np.int64))
    if device.type == "cuda":
        joined = joined.pin_memory()
    pieces = iter(torch.split(joined.to(device, non_blocking=True), [len(a) for a in arrays]))
    return {
        type_id: TypeIndices(
            {name: next(pieces) for name in geometry.pulls},
            {slots: next(pieces) for slots in geometry.gathers},
            *(next(pieces) for _ in range(2 if None in geometry.gathers else 0)),
        )
        for type_id, geometry in types.items()
    }


def _list_arrays(geometry: TypeGeometry) -> list[Index]:
    """Return the indices of a function, in the order of the fields of TypeIndices."""
    arrays = [*geometry.pulls.values(), *(g.index for g in geometry.gathers.values())]
    if None in geometry.gathers:
        starts = geometry.starts
        n_edges = np.diff(geometry.gathers[None].edge_start)
        first = starts[:-1].astype(np.int64).repeat(np.diff(starts))  # of each row's batch
        owner = np.arange(geometry.n_rows).repeat(n_edges)
        arrays += [owner, owner - first.repeat(n_edges)]
    return arrays


@dataclass(slots=True)
class Scope:
    """Rows start to end of the type (edges edge_start to edge_end); batch -1 means all batches.

    Attributes:
        state_row: The first of these rows among the state rows.
    """

    batch: int
    start: int
    end: int
    state_row: int
    edge_start: int = 0
    edge_end: int = 0


Run = Callable[[Scope], None]
View = Callable[[Scope], Tensor]


class Bound:
    """Buffers, parameters, rows and pulls of one vertex function; `bind` sets the mini-batch.

    Attributes:
        shared: Matrices of states, by name, that all functions share.
    """

    def __init__(
        self,
        plan: Plan,
        parameters: StepwiseParameters,
        shared: dict[BufferName, Matrix],
        device: torch.device,
        tally: Tally,
    ) -> None:
        self.plan, self.parameters, self.device, self.tally = plan, parameters, device, tally
        self.shared, self.own = shared, dict[BufferName, Matrix]()
        for name, buffer in plan.buffers.items():
            matrices = shared if name.is_shared else self.own
            matrices.setdefault(name, Matrix(buffer.width, device))
        self.geometry: TypeGeometry
        self.indices: TypeIndices
        self.is_filled: set[BufferName] = set()  # gather buffers with every row of the type
        self._scopes: list[Scope] | None = None
        self._first: dict[Slots, list[int]] = {}  # Gather.runs as plain numbers
        self.room = [0, 0, 0]  # capacities, see Layout.room_wanted

    def find_matrix(self, name: BufferName) -> Matrix:
        """Return a matrix by its buffer's name."""
        return self.own.get(name) or self.shared[name]

    def bind(self, geometry: TypeGeometry, indices: TypeIndices, wanted: list[int]) -> None:
        """Set the rows of a mini-batch, and allocate memory for them.

        Args:
            wanted: See Layout.room_wanted.
        """
        self.geometry = geometry
        self._scopes = None
        self._first.clear()
        self._make_room(wanted)
        self.indices = indices
        self.is_filled.clear()

    def _make_room(self, wanted: list[int]) -> None:
        """Extend every buffer to the number of rows of the type, of a call, or of the edges."""
        if all(new <= old for new, old in zip(wanted, self.room, strict=True)):
            return
        n, at_once, n_edges = room = list(map(max, wanted, self.room))
        self.room = [0, 0, 0]  # until everything is allocated, because memory may not suffice
        for name, matrix in self.own.items():
            buffer = self.plan.buffers[name]
            if buffer.domain == EDGE:
                matrix.ensure(n_edges)
            else:
                matrix.ensure(n if buffer.memory is MemoryKind.SAVED else at_once)
        self.room = room

    @property
    def scopes(self) -> list[Scope]:
        """Rows of every batch, computed on first access."""
        if self._scopes is None:
            self._scopes = self._find_scopes()
        return self._scopes

    def _find_scopes(self) -> list[Scope]:
        geometry = self.geometry
        starts, first_row = geometry.starts.tolist(), geometry.first_row.tolist()
        scopes = [
            Scope(batch, starts[batch], starts[batch + 1], first_row[batch])
            for batch in range(len(first_row))
        ]
        each = geometry.gathers.get(None)
        if each is not None:
            for scope in scopes:
                scope.edge_start = int(each.edge_start[scope.start])
                scope.edge_end = int(each.edge_start[scope.end])
        return scopes

    def select_all_rows(self) -> Scope:
        """Return all rows of the type."""
        rows = self.geometry
        return Scope(-1, 0, rows.n_rows, int(rows.first_row[0]), 0, rows.n_edges)

    def find_first_row(self, slots: Slots, s: Scope) -> int:
        """Return the first of the rows that a gather reads, or NOT_CONTIGUOUS."""
        if s.batch < 0:
            return int(self.geometry.gathers[slots].runs[-1])
        if slots not in self._first:
            self._first[slots] = self.geometry.gathers[slots].runs.tolist()
        return self._first[slots][s.batch]

    def view_operand(self, i: int) -> View:
        """Return a function that maps a scope to the value of a node."""
        node = self.plan.nodes[i]
        if node.op == "parameter":
            value = self.parameters.values[node.name]
            return lambda s: value
        if node.op == "pull":
            return lambda s: self.indices.pulls[node.name][s.start : s.end]
        return self.view(self.plan.refs[i])

    def view(self, ref: Ref) -> View:
        """Return a function that maps a scope to the columns of a ref."""
        matrix, start, width = self.find_matrix(ref.buffer), ref.start, ref.width
        buffer = self.plan.buffers[ref.buffer]
        if ref.buffer.is_gathered:
            return self._view_gathered(ref)
        if buffer.domain == EDGE:
            if buffer.memory is MemoryKind.SCRATCH:
                return lambda s: matrix.slice(start, width)[: s.edge_end - s.edge_start]
            return lambda s: matrix.slice(start, width)[s.edge_start : s.edge_end]
        if buffer.memory is MemoryKind.SAVED:
            return lambda s: matrix.slice(start, width).narrow(0, s.start, s.end - s.start)
        if buffer.memory is MemoryKind.SCRATCH:
            return lambda s: matrix.slice(start, width).narrow(0, 0, s.end - s.start)
        return lambda s: matrix.slice(start, width).narrow(0, s.state_row, s.end - s.start)

    def copy_rows(self, slots: Slots, state: Matrix, matrix: Matrix, s: Scope) -> None:
        """Copy children's states into the rows of the scope."""
        n_slots = count_slots(slots)
        start, end = (s.edge_start, s.edge_end) if slots is None else (s.start, s.end)
        target = matrix.tensor[start:end].view((end - start) * n_slots, state.width)
        index = self.indices.gathers[slots][start * n_slots : end * n_slots]
        torch.index_select(state.tensor, 0, index, out=target)
        self.tally.n_launches += 1
        self.tally.bytes_copied += target.numel() * FLOAT_BYTES

    def _view_gathered(self, ref: Ref) -> View:
        """Return a view of a gather: the children's rows in place if they are consecutive."""
        matrix = self.find_matrix(ref.buffer)
        states, slots = name_state_buffer(ref.buffer.of), self.plan.find_gathered_slots(ref.buffer)
        n_slots = count_slots(slots)
        columns = slice(ref.start, ref.start + ref.width)

        def view(s: Scope) -> Tensor:
            first = self.find_first_row(slots, s)
            start, end = (s.edge_start, s.edge_end) if slots is None else (s.start, s.end)
            if first != NOT_CONTIGUOUS:
                rows = self.shared[states].tensor.narrow(0, first, (end - start) * n_slots)
                return rows.view(end - start, matrix.width)[:, columns]
            if s.batch < 0 and ref.buffer not in self.is_filled:
                self._fill_viewed_rows(ref.buffer, slots)
            return matrix.slice(ref.start, ref.width).narrow(0, start, end - start)

        return view

    def _fill_viewed_rows(self, buffer: BufferName, slots: Slots) -> None:
        """Copy rows that batches read in place, so that the buffer has the rows of all batches."""
        gather = self.geometry.gathers[slots]
        state = self.shared[name_state_buffer(buffer.of)]
        for batch in (gather.runs[:-1] != NOT_CONTIGUOUS).nonzero()[0]:
            self.copy_rows(slots, state, self.find_matrix(buffer), self.scopes[batch])
        self.is_filled.add(buffer)
