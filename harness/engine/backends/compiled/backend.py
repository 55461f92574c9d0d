"""CPU backend: one interpreter runs instructions on NumPy memory, in one call per stage.

All graph segments of a mini-batch are one list of calls, without Python in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import llvmlite
import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine import backend
from dynbatch.harness.engine.backend import EVERY, Arrangement, LiveSegments
from dynbatch.harness.engine.backends.compiled.arguments import AddressTable
from dynbatch.harness.engine.backends.compiled.live_segments import CompiledSegments
from dynbatch.harness.engine.backends.compiled.memory import Memory, Parameters
from dynbatch.harness.engine.backends.compiled.operators import OPERATORS
from dynbatch.harness.engine.backends.compiled.program import StageProgram
from dynbatch.harness.engine.cpu_kernels import blas, loss_kernels
from dynbatch.harness.engine.cpu_kernels.context import TICKS_READABLE, read_ticks
from dynbatch.harness.engine.cpu_kernels.loss_kernels import LossSums
from dynbatch.harness.engine.cpu_kernels.own_matmuls import SMALL
from dynbatch.harness.engine.cpu_kernels.team import Call, Callee, Calls, Team
from dynbatch.harness.engine.lowering.plan import (
    FORWARD,
    STAGES,
    WHOLE_STAGES,
    Abilities,
    Plan,
    Ref,
)
from dynbatch.harness.engine.rows.fields import Index
from dynbatch.harness.engine.rows.layout import RowRules
from dynbatch.harness.engine.rows.segments import ALL_ROWS, Loss, Run, Segment, Segments
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.precision import EXACT
from dynbatch.harness.vertex.shared_products import RowBlock

Starts = NDArray[np.integer]  # first batch of each segment (n_segments + 1,)


def _order_calls(starts: list[Starts], n_segments: int) -> IntArray:
    """Return Calls.order: one segment after the other, each with its callees."""
    order = np.empty((n_segments, len(starts), 3), dtype=np.int32)
    for k, of_callee in enumerate(starts):
        order[:, k, 0], order[:, k, 1] = k, of_callee[:-1]
        order[:, k, 2] = of_callee[1:] - of_callee[:-1]
    return order[order[:, :, 2] > 0]


def spread(batches: IntArray, starts: Starts, split: Mapping[int, int]) -> tuple[IntArray, Starts]:
    """Split batches of all rows of some functions, which run batch by batch.

    Args:
        batches: (k, 2).
        starts: The first batch of each segment.
        split: The number of batches of these functions.

    Returns:
        The new batches, and the new first batch of each segment.
    """
    if not split:
        return batches, starts
    counts = np.ones(len(batches), dtype=np.int32)
    for type_id, n in split.items():
        counts[(batches[:, 0] == type_id) & (batches[:, 1] == ALL_ROWS)] = n
    ends = np.zeros(len(batches) + 1, dtype=np.int32)
    np.cumsum(counts, out=ends[1:])
    result = batches.repeat(counts, axis=0)
    positions = np.arange(len(result), dtype=np.int32) - ends[:-1].repeat(counts)
    is_one_of_many = counts.repeat(counts) > 1
    result[is_one_of_many, 1] = positions[is_one_of_many]
    return result, ends[starts]


class Backend(backend.Backend):
    """Backend that runs one instruction program per stage."""

    abilities = Abilities(
        OPERATORS,
        fuses=True,
        reads_children=True,
        adds_to_children=True,
        largest_in_place=SMALL,
        reads_row_blocks=True,
        starts_from_biases=True,
    )

    keeps_states = True

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        super().__init__(switches, device, threads)
        self._multiplying = blas.prepare_libraries(switches.blas, 1)
        self._team = Team(threads, self._multiplying)
        self._programs: dict[tuple[str, int | None], StageProgram] = {}
        self._kinds: dict[tuple[int, str], tuple[bool, bool]] = {}
        self._n_programs = 0

    @classmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        """Return the reason why this cannot run here, such as another device or a missing BLAS."""
        if device != "cpu":
            return f"its kernels run on the CPU, got device={device}; use backend=stepwise"
        if switches.profile and not TICKS_READABLE:
            return "profile=true needs an x86 processor"
        if switches.precision != EXACT:
            return f"precision={switches.precision} needs backend=cuda; remove it"
        try:
            blas.require_library()
        except UnsupportedTrial as error:
            return str(error)
        return None

    def load(self, weights: Weights) -> None:
        """Copy the weights."""
        own = self._multiplying.has_own_kernels
        self._parameters = Parameters(weights, self._team.n, has_own_kernels=own)
        self._memory = Memory(self._parameters)
        self._found = AddressTable(self._memory)

    def view_rows(self, blocks: Iterable[RowBlock]) -> None:
        """Make rows of parameters readable as parameters."""
        self._parameters.view_rows(blocks)

    def compile(self, plans: Mapping[int, Plan]) -> None:
        """Add plans; the programs of a stage are written when it first runs."""
        new = {t: plan for t, plan in plans.items() if t not in self._memory.plans}
        if not new:
            return
        self._memory.add(new)
        # Programs of one function stay valid; those of all functions do not contain the new ones.
        of_one = {key: program for key, program in self._programs.items() if key[1] is not None}
        self._programs = of_one

    def count_programs(self) -> int:
        """Return the number of stage programs written so far."""
        return self._n_programs

    def arrange(self, rows: Arrangement) -> None:
        """Allocate memory for the rows."""
        self._memory.arrange(rows)

    def make_live_segments(self, rules: RowRules) -> LiveSegments | None:
        """Return graph segments planned by compiled code if only the layout changes between them.

        There are none if Python runs between batches, or if no counter can separate the phases.
        """
        if self._calls_each_batch or self.switches.profile or not TICKS_READABLE:
            return None
        segments = CompiledSegments(
            rules,
            self._memory,
            self._found,
            self._team,
            partial(self._ensure_program, type_id=None),
            self._inspect_steps,
            self.tally,
        )
        return segments if self._found.is_steady else None

    def run_together(self, runs: Sequence[Run]) -> None:
        """Run all stages without Python in between, unless every batch is a separate call."""
        calls = [call for stage, batches in runs for call in self._make_calls(stage, batches)]
        for part in [[call] for call in calls] if self._calls_each_batch else [calls]:
            self._run_and_count(partial(self._team.run, part))

    def run_segments(self, segments: Sequence[Segment]) -> Callable[[], float]:
        """Run all segments that were planned together, and add up their losses, in one call."""
        if not isinstance(segments, Segments) or self._calls_each_batch:
            return super().run_segments(segments)
        columns = [self._memory.view_rows(loss.type_id, loss.ref) for loss in segments.losses]
        if any(len(column) != 1 for column in columns):
            return super().run_segments(segments)
        sums = LossSums([column[0][:, 0] for column in columns])
        self._run_and_count(partial(self._team.run_all, self._build_calls(segments, sums)))
        total = float(sums.total[0])
        return lambda: total

    def _build_calls(self, segments: Segments, sums: LossSums) -> Calls:
        """Return the calls of every graph segment: its stages, and then the sum of its losses."""
        callees: list[Callee] = []
        batches, starts = list[IntArray](), list[Starts]()
        for stage in FORWARD:
            stage_batches, begin = segments.batches[stage], segments.starts[stage]
            if len(stage_batches):
                if stage in WHOLE_STAGES:
                    stage_batches, begin = spread(stage_batches, begin, self._find_split(stage))
                callees.append(self._ensure_program(stage, None))
                batches.append(np.ascontiguousarray(stage_batches))
                starts.append(begin)
        if segments.losses:
            bounds = np.stack([loss.starts for loss in segments.losses], axis=1)
            callees.append(sums)
            batches.append(np.stack([bounds[:-1], bounds[1:]], axis=2).reshape(-1, 2))
            starts.append(np.arange(len(bounds)) * len(segments.losses))
        return Calls(callees, batches, _order_calls(starts, len(segments)))

    def _run_and_count(self, run: Callable[[], None]) -> None:
        tallies = self._team.tallies
        for tally in tallies:
            tally[:] = 0
        self._found.update()
        self._team.take_places(self._found.address)
        run()
        self.tally.n_launches += int(tallies[0][0])
        self.tally.bytes_copied += sum(int(tally[1]) for tally in tallies)
        self.tally.n_moving_cycles += int(tallies[0][2])

    def _make_calls(self, stage: str, batches: IntArray) -> Iterator[Call]:
        if stage in WHOLE_STAGES:
            batches = self._split_batches(stage, batches)
        if not len(batches):
            return
        if not self._calls_each_batch:
            yield Call(self._ensure_program(stage, None), np.ascontiguousarray(batches))
            return
        for batch in np.split(batches, len(batches)):
            program = self._ensure_program(stage, int(batch[0, 0]))
            yield Call(program, np.ascontiguousarray(batch))

    @property
    def _calls_each_batch(self) -> bool:
        """True if Python runs between batches."""
        return self.switches.loop == "python"

    def _ensure_program(self, stage: str, type_id: int | None) -> StageProgram:
        if (stage, type_id) not in self._programs:
            self._write_programs(stage, type_id)
        return self._programs[stage, type_id]

    def _write_programs(self, needed: str, type_id: int | None) -> None:
        """Write the programs of all stages that the functions have."""
        plans = self._memory.plans if type_id is None else {type_id: self._memory.plans[type_id]}
        for stage in STAGES:
            having = {t: plan for t, plan in plans.items() if plan.steps[stage]}
            if (having or stage == needed) and (stage, type_id) not in self._programs:
                self._programs[stage, type_id] = StageProgram(
                    having, stage, self._found, profile=self.switches.profile
                )
                self._n_programs += 1

    def _find_split(self, stage: str) -> dict[int, int]:
        """Return the functions whose states a stage addresses although they are not consecutive.

        Returns:
            The number of batches of each function, which the stage runs one by one.
        """
        return {
            type_id: self._memory.layout.count_batches(type_id)
            for type_id in self._memory.scattered
            if self._inspect_steps(type_id, stage)[1]
        }

    def _split_batches(self, stage: str, batches: IntArray) -> IntArray:
        """Split batches as `spread` does; this is faster for a few batches."""
        split = self._find_split(stage)
        if not split:
            return batches
        pairs: list[tuple[int, int]] = []
        for type_id, position in batches.tolist():
            if position == ALL_ROWS and type_id in split:
                pairs += [(type_id, b) for b in range(split[type_id])]
            else:
                pairs.append((type_id, position))
        return np.array(pairs, dtype=np.int32).reshape(-1, 2)

    def _inspect_steps(self, type_id: int, stage: str) -> tuple[bool, bool]:
        """Return whether a function has steps in a stage, and whether these address states."""
        key = (type_id, stage)
        if key not in self._kinds:
            plan = self._memory.plans[type_id]
            self._kinds[key] = bool(plan.steps[stage]), plan.has_state_access(stage)
        return self._kinds[key]

    def read(self, type_id: int, ref: Ref, rows: slice = EVERY) -> NDArray[np.float32]:
        """Return copies of columns."""
        values = self._copy_rows(type_id, ref, rows)
        step = self._memory.plans[type_id].find_overwriting_step(ref)
        if step is None:
            return values
        label = self._memory.layout.select_pulled(type_id, step.label)[rows]
        rest = (self._copy_rows(type_id, other, rows) for other in (step.loss, step.log_sum))
        return loss_kernels.restore_logits(values, label, *rest)

    def defer_losses(self, losses: Sequence[Loss]) -> Callable[[], float]:
        """Add up losses without copying them."""
        total = 0.0
        for type_id, ref, rows in losses:
            columns = self._memory.view_rows(type_id, ref)
            if rows != EVERY and len(columns) > 1:
                columns = [np.concatenate(columns)]
            for part in columns:
                total += float(part[rows].sum())
        return lambda: total

    def read_states(self, state: str, rows: Index) -> NDArray[np.float32]:
        """Return copies of rows."""
        return self._memory.copy_states(state, rows)

    def _copy_rows(self, type_id: int, ref: Ref, rows: slice) -> NDArray[np.float32]:
        parts = self._memory.view_rows(type_id, ref)
        return parts[0][rows].copy() if len(parts) == 1 else np.concatenate(parts)[rows]

    def clear_gradients(self) -> None:
        """Zero the gradients of states; those of parameters are overwritten."""
        begin = self.read_ticks()
        self._memory.clear_gradients()
        self.tally.n_moving_cycles += self.read_ticks() - begin

    def read_ticks(self) -> int:
        """Return the processor's counter."""
        return read_ticks() if self.switches.profile else 0

    def gradients(self) -> Weights:
        """Return dense gradients of all loaded parameters."""
        having, looked_up = self._parameters.list_written(), self._memory.yield_row_gradients()
        return self._parameters.collect_gradients(having, looked_up)

    def update(self, learning_rate: float) -> None:
        """Update dense parameters as a whole, and looked-up tables row by row."""
        self._parameters.update(learning_rate, self._memory.yield_row_gradients())

    def read_weights(self) -> Weights:
        """Return copies of all loaded parameters."""
        return self._parameters.copy_weights()

    def facts(self) -> dict[str, str]:
        """Return the library that multiplies, and the number of batches per call."""
        calls = "one call a batch" if self._calls_each_batch else "one call a pass"
        facts = {"backend": "compiled", "blas": self._multiplying.names, "calls": calls}
        return facts | {"threads": self._team.describe_threads(self.threads)}

    def list_versions(self) -> dict[str, str]:
        """Return the versions of the compiler and of the library that multiplies."""
        return {
            "llvmlite": llvmlite.__version__,
            "blas": self._multiplying.names,
        }
