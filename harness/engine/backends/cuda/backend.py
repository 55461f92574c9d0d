"""Kernels generated from plans, through Triton: a mini-batch is a program of their tiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata, util

import numpy as np
import torch
from numpy.typing import NDArray

from harness.contracts.model import Weights
from harness.contracts.timeline import Details, Part
from harness.engine import backend
from harness.engine.backend import EVERY, Arrangement, Loss, Naming, Run
from harness.engine.backends.cuda.arrays import Reader, WordArray, Words
from harness.engine.backends.cuda.expressions import EXPRESSIONS
from harness.engine.backends.cuda.kernel_cache import use_own_kernel_cache
from harness.engine.backends.cuda.kinds import Kind, MatrixForm, TableStepKind
from harness.engine.backends.cuda.launching import Graphs, Launch, Launcher, PhaseByPhase
from harness.engine.backends.cuda.memory import Memory, Staging, joined
from harness.engine.backends.cuda.model import KERNELS, ModelKinds, kinds_of
from harness.engine.backends.cuda.module import write_module
from harness.engine.backends.cuda.program import Instruction, Numbers, Phase, Rows, batch_phases
from harness.engine.backends.cuda.results import Results
from harness.engine.backends.cuda.tiles import Tiling
from harness.engine.generated import load_generated
from harness.engine.lowering.abilities import Abilities
from harness.engine.lowering.plan import Plan, Ref
from harness.engine.switches import Switches
from harness.values.instances import IntArray

OTHER_OPERATORS = (
    *("gather", "gather_each", "pull", "parameter", "state_gradient", "slice", "concat"),
    *("matmul", "matmul_transposed", "outer_sum", "vertex_sum", "row_sum", "zeros", "ones"),
    *("lookup", "spread", "expand", "sum_elements", "sum_edges"),
    *("pick_neg_log_softmax", "softmax_minus_one_hot", *(form.value for form in MatrixForm)),
)
INDEPENDENT = ("eager", "lazy", "backward_lazy")  # stages of all rows, in which none waits
PROGRAMS_PER_PROCESSOR = 2
N_PROGRAMS_INTERPRETED = 2  # in Triton's interpreter, which runs one after the other


class Backend(backend.Backend):
    """Plans as kinds of fused kernels, each mini-batch as one upload and a few graphs."""

    abilities = Abilities(
        frozenset((*EXPRESSIONS, *OTHER_OPERATORS)),
        fuses=True,
        reads_children=True,
        fuses_losses=True,
        narrows=True,
        gives_back_parts=True,
        reuses_places=False,
    )
    runs_together = True
    tiling = Tiling()

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        super().__init__(switches, device, threads)
        self._device = torch.device(device)
        self._launcher: Launcher = PhaseByPhase() if device == "cpu" else Graphs()
        self._staging = Staging(self._device)
        self._plans: dict[int, Plan] = {}
        self._several: set[Reader] = set()
        self._kinds: ModelKinds | None = None
        self._numbers: dict[str, Numbers] = {}
        self._kernels: dict[str, Callable[..., None]] = {}
        self._places: dict[WordArray, int] = {}
        self._words: dict[WordArray, Words] = {}
        self._phases: dict[str, list[Phase]] = {}
        self._rows: Arrangement | None = None
        self._n_programs = 0

    @classmethod
    def why_not(cls, switches: Switches, device: str) -> str | None:
        """Return why this cannot run here: no CUDA device, no Triton, or a switch it has not."""
        if switches.profile:
            return "profile=true counts inside compiled code; use backend=compiled on a CPU"
        if switches.blas != "auto":
            return "its products are its own; use blas=auto"
        if switches.granularity == "operator":
            return (
                "every operator that joins later would have all kernels compiled anew; use"
                " backend=stepwise"
            )
        if util.find_spec("triton") is None:
            return "it writes kernels for Triton, which is not installed; pip install triton"
        if device == "cpu" and not is_interpreting():
            return (
                "its kernels are for a GPU; use backend=compiled, or TRITON_INTERPRET=1 to have"
                " them interpreted, slowly"
            )
        if device == "cuda" and not torch.cuda.is_available():
            return "torch sees no CUDA device here; use device=cpu"
        return None

    def load(self, weights: Weights) -> None:
        """Copy the weights to the device."""
        self._memory = Memory(weights, self._device)

    def compile(self, plans: Mapping[int, Plan]) -> None:
        """Take more plans; kernels are written anew when a mini-batch is next arranged."""
        for type_id, plan in plans.items():
            if type_id not in self._plans:
                self._plans[type_id] = plan
                self._memory.add(type_id, plan)
                self._kinds = None

    def n_programs(self) -> int:
        """Kernels that were written."""
        return self._n_programs

    @property
    def n_uploads(self) -> int:
        """Copies of words to the device."""
        return self._staging.n_uploads

    @property
    def n_captures(self) -> int:
        """Graphs that were captured, each for programs of some size."""
        return self._launcher.n_captures

    def _write_kernels(self) -> ModelKinds:
        memory = self._memory
        kinds = kinds_of(
            self._plans, memory.shapes, memory.packs, self._several, fuse=self.switches.fusion
        )
        self._places, self._numbers, self._kernels = {}, {}, {}
        for kernel in KERNELS:
            mine = kinds.of_kernel(kernel)
            module = write_module(mine, self.tiling, self.switches.precision, self._places)
            self._numbers[kernel] = Numbers.of(module, self.tiling, mine)
        return kinds

    # --- mini-batches ---

    def arrange(self, rows: Arrangement) -> None:
        """Write a mini-batch's programs, upload them with its indices, and make room."""
        self._rows = rows
        if self._kinds is None:
            self._kinds = self._write_kernels()
        several = {reader for reader in self._kinds.readers if not reader.is_single(rows)}
        if not several <= self._several:
            self._several |= several
            self._kinds = self._write_kernels()
        self._memory.arrange(rows, self._plans, n_totals=len(self._kinds.totals))
        self._words = {array: array.find(rows) for array in self._places}
        self._phases = {
            "forward": [*self._phases_of(rows.forward), *self._totals()],
            "backward": self._phases_of([run for run in rows.backward if run[0] == "backward"]),
            "backward_lazy": self._phases_of(
                [run for run in rows.backward if run[0] == "backward_lazy"]
            ),
            "update": self._update_phases(),
        }
        self._upload()

    def _upload(self) -> None:
        programs = [self._numbers[kernel].words(self._phases[kernel]) for kernel in KERNELS]
        self._staging.upload(joined([*programs, *self._words.values()]))

    def _phases_of(self, runs: Sequence[Run]) -> list[Phase]:
        assert self._kinds is not None
        assert self._rows is not None
        found: list[Phase] = []
        for stage, batches in runs:
            kinds, types = self._kinds.stages[stage], self._rows.types
            pairs = [(int(type_id), int(position)) for type_id, position in batches.tolist()]
            phases = batch_phases(kinds, types, pairs, at_once=stage in INDEPENDENT)
            found += self._with_sums(phases) if stage == "backward_lazy" else phases
        return found

    def _with_sums(self, phases: list[Phase]) -> list[Phase]:
        """Gradients of parameters, as early as what they sum up is there."""
        assert self._kinds is not None
        at = self._kinds.sums_after
        groups = [[kind for kind in self._kinds.sums if not kind.adds]]
        groups += [[kind] for kind in self._kinds.sums if kind.adds]  # one behind the other
        phases += [[] for _ in range(at + len(groups) - len(phases))]
        for k, group in enumerate(groups):
            phases[at + k] += [Instruction(kind, Rows(0, 1)) for kind in group]
        return [phase for phase in phases if phase]

    def _totals(self) -> list[Phase]:
        """The losses of all functions, those without rows too."""
        assert self._kinds is not None
        phase = [Instruction(kind, Rows(0, 1)) for kind in self._kinds.totals]
        return [phase] if phase else []

    def _update_phases(self) -> list[Phase]:
        assert self._kinds is not None
        phases = [
            [Instruction(kind, Rows(0, n)) for kind in kinds if (n := self._n_rows_of(kind))]
            for kinds in self._kinds.steps
        ]
        return [phase for phase in phases if phase]

    def _n_rows_of(self, kind: Kind) -> int:
        """Rows of a table that were looked up; 1 for kinds that are not of rows."""
        return len(self._words[kind.words]) if isinstance(kind, TableStepKind) else 1

    # --- work ---

    def run_together(self, runs: Sequence[Run]) -> None:
        """Start what was arranged: all of the forward, or all of the backward stages."""
        self._start(*_programs_of(runs))

    def run_in_parts(self, runs: Sequence[Run], part: Part, words: Naming) -> None:
        """What was arranged, one launch after the other, each a kernel of its phase's kinds."""
        for name in _programs_of(runs):
            for number, phase in enumerate(self._phases[name]):
                kinds = dict.fromkeys(type(one.kind).__name__ for one in phase)
                details: Details = {
                    "kinds": ", ".join(kinds),
                    "instructions": len(phase),
                    "rows": sum(one.rows.n for one in phase),
                }
                with part("kernel", f"{name}, phase {number}", details):
                    self._start_phase(name, number)

    def run(self, stage: str, batches: IntArray) -> None:
        """One stage by itself, with an upload of its own."""
        kernel = stage if stage in KERNELS else "forward"
        self._phases[kernel] = self._phases_of([(stage, batches)])
        self._upload()
        self._start(kernel)

    def _start(self, *kernels: str) -> None:
        launches = [self._launch(kernel) for kernel in kernels if self._phases[kernel]]
        if launches:
            n_calls = self._launcher.start(" ".join(kernels), launches)
            self.tally.n_launches += n_calls

    def _start_phase(self, kernel: str, number: int) -> None:
        self._launch(kernel).start(number)
        self.tally.n_launches += 1

    def _launch(self, name: str) -> Launch:
        module = self._numbers[name].module
        if name not in self._kernels:
            use_own_kernel_cache()
            self._kernels[name] = load_generated(module.text, "run")
            self._n_programs += 1
        memory = self._memory
        return Launch(
            self._kernels[name],
            KERNELS.index(name),
            len(self._phases[name]),
            self._grid(),
            self._staging.words,
            memory.rate,
            tuple(memory.tensor(array) for array in module.floats),
        )

    def _grid(self) -> int:
        if self._device.type == "cpu":
            return N_PROGRAMS_INTERPRETED
        properties = torch.cuda.get_device_properties(self._device)
        return int(properties.multi_processor_count) * PROGRAMS_PER_PROCESSOR

    def clear_gradients(self) -> None:
        """Zero those that are added to; the others are written, or pulled."""
        assert self._kinds is not None
        for name in self._kinds.added_to:
            self._memory.gradient(name).zero_()

    def update(self, learning_rate: float) -> None:
        """Step dense parameters whole, looked-up tables row by row."""
        self._memory.rate.fill_(learning_rate)
        self._start("update")

    def total(self, losses: Sequence[Loss]) -> float:
        """The losses of all that was run forward, which the device has summed up."""
        return float(self._memory.totals.sum())

    # --- results ---

    @property
    def _results(self) -> Results:
        return Results(self._memory, self._plans, self._rows)

    def read(self, type_id: int, ref: Ref, rows: slice = EVERY) -> NDArray[np.float32]:
        """Copy to NumPy; logits that a gradient has replaced are computed back."""
        return self._results.read(type_id, ref, rows)

    def gradients(self) -> Weights:
        """Copy to NumPy, dense."""
        assert self._kinds is not None
        return self._results.gradients(self._kinds.summed)

    def weights(self) -> Weights:
        """Copy to NumPy."""
        values = self._memory.parameters
        return {name: values[name].cpu().numpy().copy() for name in self._memory.loaded}

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def facts(self) -> dict[str, str]:
        """How kernels are started, and how exact products are."""
        calls = "graphs" if isinstance(self._launcher, Graphs) else "one launch a phase"
        found = {"backend": "cuda", "calls": calls, "precision": self.switches.precision}
        return found | ({"interpreted": "true"} if self._device.type == "cpu" else {})

    def versions(self) -> dict[str, str]:
        """Of the compiler, and of what holds the memory."""
        return {"torch": torch.__version__, "triton": metadata.version("triton")}

    def peak_memory_bytes(self) -> int | None:
        """Peak of CUDA memory."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return None


def _programs_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """Those of KERNELS that run what was arranged."""
    backward = bool(runs) and runs[0][0].startswith("backward")
    return ("backward", "backward_lazy") if backward else ("forward",)


def is_interpreting() -> bool:
    """Whether Triton interprets kernels, on the CPU, instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"
