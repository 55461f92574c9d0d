"""From a mini-batch's rows to the words that go to the device: programs, and their indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.engine.backend import Arrangement
from harness.engine.backends.cuda.arrays import Indices, WordArray, Words
from harness.engine.backends.cuda.instructions import BatchRows
from harness.engine.backends.cuda.kinds import TableStepKind
from harness.engine.backends.cuda.memory import Memory
from harness.engine.backends.cuda.model import KERNELS, ModelKinds, kinds_of
from harness.engine.backends.cuda.module import Module, entries_of, write_module
from harness.engine.backends.cuda.program import NO_RUN, Writer, batch_rows
from harness.engine.backends.cuda.readers import Reader
from harness.engine.backends.cuda.text import N_SLOTS
from harness.engine.backends.cuda.tiles import Tiling
from harness.engine.lowering.plan import Plan
from harness.engine.rows.rounds import Run
from harness.engine.switches import Switches
from harness.values.arrays import IntArray

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
