"""Device memory: buffers that grow when they must, parameters and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from harness.contracts.model import Weights
from harness.engine.backend import Arrangement
from harness.engine.backends.cuda.arrays import (
    SHARED,
    BufferOf,
    FloatArray,
    ParameterOf,
    Totals,
)
from harness.engine.lowering.plan import Plan
from harness.errors import UnsupportedTrial
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
