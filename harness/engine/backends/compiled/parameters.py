"""Parameters and their gradients as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from harness.compiler.addresses import address_of
from harness.contracts.model import Weights
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
from harness.engine.rows.geometry import Index
from harness.errors import UnsupportedTrial
from harness.vertex.folding import FoldedTable
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
