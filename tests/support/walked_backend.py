"""Programs of the CUDA backend, executed by NumPy instead of Triton.

All instructions of a phase read the memory as it was before the phase, and each element may be
written only once per phase. A kind that reads a value written in its own phase gets the old value,
which is NaN if it was never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import ModelSizes, Weights, draw_initial_weights
from dynbatch.harness.engine.backends.cuda import backend as cuda
from dynbatch.harness.engine.backends.cuda import launching
from dynbatch.harness.engine.backends.cuda.kinds import (
    Base,
    Columns,
    Constant,
    CopyKind,
    Kind,
    LoadParameter,
    MatrixForm,
    MatrixKind,
    Operand,
    Row,
    RowList,
    RowSumKind,
    SoftmaxKind,
    SumKind,
    TileKind,
    TransposeKind,
)
from dynbatch.harness.engine.backends.cuda.launching import Launches
from dynbatch.harness.engine.backends.cuda.memory import DeviceMemory
from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.module import WORDS, KernelModule
from dynbatch.harness.engine.backends.cuda.text import AHEAD, write_expression
from dynbatch.harness.engine.backends.cuda.words import FloatArray, WordArray, Words
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.models.tree_lstm import TreeLSTM
from tests.support.engine_runs import Setting
from tests.support.instances import draw_trees

Values = NDArray[np.float32]
N_CLASSES = 5  # as in SST; the vocabulary size is not in a kernel's text
NAMES: dict[str, Any] = {
    "tl": SimpleNamespace(where=np.where, exp=np.exp, log=np.log, sqrt=np.sqrt),
    "tanh": np.tanh,
    "sigmoid": lambda x: (0.5 * np.tanh(0.5 * x) + 0.5).astype(np.float32),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Range of a function's rows (or edges).

    Attributes:
        state_row: index of the first row among the rows of the states.
    """

    start: int
    n: int
    state_row: int = 0


@dataclass(frozen=True, slots=True)
class DeviceInstruction:
    """Kind over a range of rows."""

    kind: Kind
    rows: Rows


Phase = list[DeviceInstruction]
UNUSED = launching.Launch(print, 0, 1, torch.zeros(0), ())  # NumPy walks instead


def read_program(module: KernelModule, program: Words) -> list[Phase]:
    """Decode a program into phases; values after its end are ignored."""
    n_phases = int(program[0])
    ends = program[1 : 2 + n_phases].tolist()
    table = program[2 + n_phases :][: ends[-1] * WORDS].reshape(-1, WORDS).tolist()
    instructions = [
        DeviceInstruction(module.entries[number].kind, Rows(start, n, state_row))
        for number, start, n, state_row, *_ in table
    ]
    return [instructions[first:last] for first, last in pairwise(ends)]


class PoisonedMemory(DeviceMemory):
    """Memory whose unwritten values are NaN."""

    def allocate(self, *shape: int) -> torch.Tensor:
        return torch.full(shape, float("nan"))


class WalkedBackend(cuda.Backend):
    """Backend that runs programs phase by phase with NumPy.

    Attributes:
        slack: Phases by which the second stream is ahead of the batches' needs.
    """

    slack = 0

    @classmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        return None

    def _make_memory(self, weights: Weights) -> DeviceMemory:
        return PoisonedMemory(weights, self._device, self._forget_launches)

    def phases(self, module: KernelModule, words: Words) -> list[Phase]:
        """Return the phases of a program, as uploaded."""
        return read_program(module, words)

    def _run(self, *kernels: str) -> Launches:
        for kernel in kernels:
            self._walk(*self._bound(kernel))
        return self._list_work(*kernels)

    def _list_work(self, *kernels: str) -> Launches:
        return [(UNUSED, self._prepared.count_phases(kernel)) for kernel in kernels]

    def _bound(self, kernel: str) -> tuple[Launch, Words, Mapping[WordArray, tuple[int, int]]]:
        """Return kernels and addresses that a launch binds; words are read when it runs."""
        lengths = list(map(len, self._prepared.indices))
        places, words = self._preparation.places, self._staging.words.numpy()
        indices = dict(zip(places, zip(places.values(), lengths, strict=True), strict=True))
        module = self._preparation.modules[kernel]
        floats = {array: self._memory.find_tensor(array).numpy() for array in module.floats}
        return Launch(module, KERNELS.index(kernel), floats), words, indices

    def _walk(
        self, launch: Launch, words: Words, indices: Mapping[WordArray, tuple[int, int]]
    ) -> None:
        """Run all phases; each on a second stream only as early as a batch needs it."""
        found = {array: words[words[place] :][:n] for array, (place, n) in indices.items()}
        ahead, n_done = list[Phase](), 0
        is_forward, lag = launch.slot == KERNELS.index("forward"), self._preparation.lag
        if is_forward and lag is not None:
            ahead = self.phases(launch.module, words[words[AHEAD] :])
        for k, phase in enumerate(self.phases(launch.module, words[words[launch.slot] :])):
            needed = k + 1 + (lag or 0) + self.slack
            for early in ahead[n_done:needed]:
                Walk(launch, found).phase(early)
            n_done = max(n_done, needed)
            Walk(launch, found).phase(phase)


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel with the memory of its launch."""

    module: KernelModule
    slot: int
    floats: Mapping[FloatArray, Values]


@dataclass
class Walk:
    """Execution of one phase: all reads, then all writes."""

    launch: Launch
    words: Mapping[WordArray, Words]
    writes: list[tuple[Values, Any, Values]] = field(default_factory=list)

    def phase(self, phase: Phase) -> None:
        for one in phase:
            self._run(one.kind, one.rows)
        seen: dict[int, NDArray[np.bool_]] = {}
        for array, place, values in self.writes:
            address = array.__array_interface__["data"][0]
            written = seen.setdefault(address, np.zeros(array.shape, dtype=bool))
            target = np.broadcast_arrays(*place)
            flat = np.ravel_multi_index(target, array.shape).ravel()
            assert len(np.unique(flat)) == len(flat), "an instruction writes an element twice"
            assert not written[place].any(), "two instructions of a phase write an element"
            written[place] = True
            array[place] = values

    # --- arrays ---

    def array(self, array: FloatArray) -> Values:
        found = self.launch.floats[array]
        return found.reshape(-1, found.shape[-1]) if found.ndim > 1 else found

    def matrix(self, columns: Columns) -> Values:
        """Return an array with the rows of columns; a vector has one."""
        return self.launch.floats[columns.array].reshape(-1, columns.width)

    def base(self, base: Base, rows: Rows) -> Words:
        first = rows.start if base is Base.ROWS else rows.state_row
        return np.arange(first, first + rows.n, dtype=np.int32)

    def index(self, row: Row, rows: Rows) -> Words:
        at = self.base(row.base, rows)
        return at if row.through is None else self.words[row.through][at * row.stride + row.at]

    def block(
        self, columns: Columns, rows: Rows, width: int, part: NDArray[Any] | None = None
    ) -> Values:
        """Return columns of rows (n, width); with `part`, of each row of the vertices' matrices."""
        array = self.matrix(columns)
        if isinstance(columns.row, RowList):
            return self._listed(array, columns, columns.row, rows, width)
        index = self.index(columns.row, rows)
        cols = columns.start + np.arange(width)
        if part is not None:
            index = index.repeat(part.max() + 1)
            return array[index[:, None], (part * width)[:, None] + cols[None, :]]
        found = array[np.maximum(index, 0)][:, cols].copy()
        if columns.row.optional:
            found[index < 0] = 0.0
        else:
            assert (index >= 0).all()
        return found

    def _listed(
        self, array: Values, columns: Columns, row: RowList, rows: Rows, width: int
    ) -> Values:
        starts, base = self.words[row.starts], self.base(row.base, rows)
        found = np.zeros((rows.n, width), dtype=np.float32)
        for k, r in enumerate(base):
            items = np.arange(starts[r], starts[r + 1])
            mine = items if row.items is None else self.words[row.items][items]
            found[k] = array[mine, columns.start : columns.start + width].sum(0)
        return found

    def operand(self, operand: Operand, rows: Rows, width: int, part: Any = None) -> Values:
        if isinstance(operand, Constant):
            return np.float32(operand.value)  # type: ignore[return-value]
        if isinstance(operand, LoadParameter):
            cols = np.arange(width) % operand.period if operand.period else np.arange(width)
            return self.array(operand.array)[operand.start + cols][None, :]
        return self.block(operand.columns, rows, 1 if operand.same else width, part)

    def store(
        self, columns: Columns, rows: Rows, values: Values, width: int, part: Any = None
    ) -> None:
        skipped, start = divmod(columns.start, columns.width)  # a block below the first rows
        index = self.index(columns.row, rows) + skipped
        cols = start + np.arange(width)[None, :]
        if part is not None:
            index = index.repeat(part.max() + 1)
            cols = cols + (part * width)[:, None]
        values = np.broadcast_to(values, (len(index), width))
        self.writes.append((self.matrix(columns), (index[:, None], cols), values))

    # --- kinds ---

    @singledispatchmethod
    def _run(self, kind: Kind, rows: Rows) -> None:
        raise TypeError(type(kind))

    @_run.register
    def _tile(self, kind: TileKind, rows: Rows) -> None:
        part = np.tile(np.arange(kind.per_row), rows.n) if kind.per_row > 1 else None
        values: dict[str, Any] = {}
        n = rows.n * kind.per_row
        for name, operands in kind.sums:
            values[name] = np.zeros((n, kind.width), dtype=np.float32)
            for one in operands:
                values[name] = values[name] + self.operand(one, rows, kind.width, part)
        for p in kind.products:
            x = self.block(p.x, rows, p.k, part)
            weight = self.array(p.weight)
            assert weight.shape[1] == p.leading
            block = weight[p.row : p.row + p.k, p.column : p.column + kind.width]
            assert block.shape == (p.k, kind.width)
            values[p.into] = values[p.into] + x @ block
        for name, one in kind.loads:
            values[name] = self.operand(one, rows, kind.width, part)
        for one in kind.operations:
            values[one.name] = eval(write_expression(one), NAMES, values)
        for store in kind.stores:
            self.store(store.columns, rows, values[store.name], kind.width, part)

    @_run.register
    def _softmax(self, kind: SoftmaxKind, rows: Rows) -> None:
        x = self.block(kind.logits, rows, kind.n_classes)
        if kind.bias is not None:
            x = x + self.array(kind.bias)[None, :]
        top = x.max(1, keepdims=True)
        log_sum = top + np.log(np.exp(x - top).sum(1, keepdims=True))
        label = self.words[kind.label][self.base(Base.ROWS, rows)]
        if kind.loss is not None:
            self.store(kind.loss, rows, log_sum - x[np.arange(rows.n), label][:, None], 1)
        if kind.log_sum is not None:
            self.store(kind.log_sum, rows, log_sum, 1)
        if kind.biased is not None:
            self.store(kind.biased, rows, x, kind.n_classes)
        if kind.gradient is not None:
            gradient = np.exp(x - log_sum)
            gradient[np.arange(rows.n), label] -= 1.0
            if kind.dy is not None:
                gradient = gradient * self.block(kind.dy, rows, 1)
            self.store(kind.gradient, rows, gradient, kind.n_classes)

    @_run.register
    def _row_sum(self, kind: RowSumKind, rows: Rows) -> None:
        total = self.block(kind.x, rows, kind.n_columns).sum(1, keepdims=True)
        self.store(kind.out, rows, total, 1)

    @_run.register
    def _matrix(self, kind: MatrixKind, rows: Rows) -> None:
        x = self.block(kind.x, rows, kind.k)
        if kind.form is MatrixForm.OUTER:
            y = self.block(kind.y, rows, kind.n_columns)
            made = (x[:, :, None] * y[:, None, :]).reshape(rows.n, -1)
            self.store(kind.out, rows, made, kind.k * kind.n_columns)
            return
        matrix = self.block(kind.y, rows, kind.k * kind.n_columns)
        if kind.form is MatrixForm.APPLY:
            made = np.einsum("nk,nkj->nj", x, matrix.reshape(rows.n, kind.k, kind.n_columns))
        else:
            made = np.einsum("nk,njk->nj", x, matrix.reshape(rows.n, kind.n_columns, kind.k))
        self.store(kind.out, rows, made, kind.n_columns)

    @_run.register
    def _sum(self, kind: SumKind, rows: Rows) -> None:
        shape = (kind.height, kind.width) if kind.height else (kind.width,)
        for part in range(kind.parts):
            self._sum_part(kind, rows, part, shape)

    def _sum_part(self, kind: SumKind, rows: Rows, number: int, shape: tuple[int, ...]) -> None:
        """Sum an equal share of the rows; the kernel's shares are whole steps of its loop."""
        total: Values = np.zeros(shape, dtype=np.float32)
        for one in kind.summands:
            mine = rows if one.count is None else Rows(0, int(self.words[one.count][0]))
            size = -(-mine.n // kind.parts)
            first = min(mine.n, number * size)
            mine = Rows(mine.start + first, min(size, mine.n - first), mine.state_row + first)
            part = np.tile(np.arange(one.per_row), mine.n) if one.per_row > 1 else None
            if not mine.n:
                continue
            dy = self.block(one.dy, mine, kind.width, part)
            if one.x is None:
                total = total + dy.sum(0)
            else:
                total = total + self.block(one.x, mine, kind.height, part).T @ dy
        gradient = self.array(kind.gradient)
        columns = kind.column + number * kind.width + np.arange(kind.width)
        down = (kind.row + np.arange(kind.height))[:, None]
        place = (down, columns[None, :]) if kind.height else (columns,)
        if gradient.ndim == 2 and not kind.height:
            place = (np.zeros_like(columns), columns)
        before = gradient[place] if kind.adds else np.float32(0.0)
        self.writes.append((gradient, place, total + before))

    @_run.register
    def _copy(self, kind: CopyKind, rows: Rows) -> None:
        source, out = self.array(kind.source), self.array(kind.out)
        columns = kind.out_column + np.arange(kind.width)
        down = np.arange(kind.n_rows)[:, None]
        place = (columns,) if out.ndim == 1 else (down, columns[None, :])
        value = source[..., kind.source_column : kind.source_column + kind.width].copy()
        self.writes.append((out, place, value))

    @_run.register
    def _transpose(self, kind: TransposeKind, rows: Rows) -> None:
        place = tuple(np.indices((kind.width, kind.height)))
        self.writes.append((self.array(kind.out), place, self.array(kind.source).T.copy()))


def walked_setting(name: str) -> Setting:
    """Return an example model after a mini-batch that NumPy has walked."""
    setting = Setting(name, kind=WalkedBackend)
    setting.train(setting.instances)
    return setting


def modules_of(hidden_size: int, precision: str = "ieee") -> Mapping[str, KernelModule]:
    """Return the module of every kernel of Tree-LSTM training, generated but not started."""
    sizes = ModelSizes(hidden_size, {"words": 100, "classes": N_CLASSES})
    case = TreeLSTM(sizes), draw_trees(sizes, (5, 7)), draw_initial_weights(TreeLSTM(sizes), 1)
    setting = Setting(case, Switches(precision=precision), WalkedBackend)
    setting.arrange(setting.model.mini_batch(setting.instances))
    return setting.backend._preparation.modules
