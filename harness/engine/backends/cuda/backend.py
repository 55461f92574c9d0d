"""Backend of Triton kernels generated from plans, which run each mini-batch as device programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata, util

import numpy as np
import torch
from numpy.typing import NDArray

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.backend import EVERY, Arrangement
from dynbatch.harness.engine.backends.cuda.kinds import MatrixForm, Tiling
from dynbatch.harness.engine.backends.cuda.launching import (
    GraphLauncher,
    Kernel,
    Launch,
    Launches,
    PhaseByPhase,
    Staging,
)
from dynbatch.harness.engine.backends.cuda.memory import (
    DeviceMemory,
    Preparation,
    PreparedMiniBatch,
)
from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.backends.cuda.text import AHEAD, EXPRESSIONS
from dynbatch.harness.engine.backends.cuda.triton_setup import (
    explain_failing_kernel,
    use_own_kernel_cache,
)
from dynbatch.harness.engine.backends.cuda.words import Words
from dynbatch.harness.engine.cpu_kernels import loss_kernels
from dynbatch.harness.engine.lowering.plan import OPERATORS_OF_STEPS, Abilities, Plan, Ref
from dynbatch.harness.engine.rows.segments import Run, Segment
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.engine.torch_cuda import explain_no_cuda
from dynbatch.harness.engine.torch_parameters import TorchBackend

# Compute capabilities: the first with asynchronous copies to shared memory, which products use, and
# the first that Triton 3.9 does not know.
FIRST, BEYOND = (8, 0), (13, 0)


def explain_unsupported_gpu() -> str | None:
    """Return why kernels do not run on CUDA's default GPU; None if they do."""
    reason = explain_no_cuda()
    if reason is not None:
        return reason
    capability = torch.cuda.get_device_capability()
    if FIRST <= capability < BEYOND:
        return _explain_failing_kernel_once()
    current, first, last = (".".join(map(str, version)) for version in (capability, FIRST, BEYOND))
    return (
        f"its kernels expect a compute capability from {first} to below {last}, got {current}"
        f" ({torch.cuda.get_device_name()}); use backend=stepwise"
    )


@cache
def _explain_failing_kernel_once() -> str | None:
    return explain_failing_kernel()  # a hanging driver takes minutes


# NumPy 2.4 no longer converts an array of one element to a number, which Triton's interpreter needs
# before version 3.7: in Triton 3.6, all kernels are correct with NumPy 2.3, and the first loop
# fails with 2.4.
TRITON_SINCE, NUMPY_SINCE = (3, 7), (2, 4)


def is_interpreting() -> bool:
    """Return whether the environment requests Triton's interpreter.

    Triton reads this setting when it is first imported.
    """
    return os.environ.get("TRITON_INTERPRET") == "1"


def explain_interpreter_conflict() -> str | None:
    """Return why these versions of Triton and NumPy cannot interpret kernels; None if they can."""
    triton, numpy = _read_version("triton"), _read_version("numpy")
    if triton < TRITON_SINCE and numpy >= NUMPY_SINCE:
        return (
            f"the interpreter of Triton {metadata.version('triton')} is incompatible with NumPy"
            f" {metadata.version('numpy')}; install numpy<2.4 or triton>=3.7"
        )
    return None


def _read_version(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in metadata.version(package).split(".")[:2])


OTHER_OPERATORS = (
    *("zeros", "ones", "lookup", "spread", "expand", "sum_elements", "sum_edges"),
    *("pick_neg_log_softmax", "softmax_minus_one_hot", *(form.value for form in MatrixForm)),
)
PROGRAMS_PER_PROCESSOR = 2
BACKWARD, UPDATE = ("backward", "backward_lazy"), "update"  # see model.KERNELS
RUNS_AHEAD = "forward, second stream"  # a program of the forward kernel
N_PROGRAMS_INTERPRETED = 2  # in Triton's interpreter, which runs them one after another


class Backend(TorchBackend):
    """Backend that runs plans as fused kernels, with one upload and a few graphs per mini-batch."""

    abilities = Abilities(
        frozenset((*OPERATORS_OF_STEPS, *EXPRESSIONS, *OTHER_OPERATORS)),
        fuses=True,
        reads_children=True,
        narrows=True,
        gives_back_parts=True,
        reuses_places=False,
        streams=True,
    )
    tiling = Tiling()

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        super().__init__(switches, device, threads)
        self._device = torch.device(device)
        self._launcher = self._choose_launcher()
        self._staging = Staging(self._device, self._forget_launches)
        self._kernels: set[str] = set()  # their sources
        self._launches: dict[str, tuple[KernelModule, Launch]] = {}
        self._prepared: PreparedMiniBatch

    def _choose_launcher(self) -> PhaseByPhase:
        return PhaseByPhase() if self._device.type == "cpu" else GraphLauncher()

    @classmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        """Return why this backend cannot run; None if it can."""
        if switches.profile:
            return "profile=true needs compiled code; use backend=compiled on a CPU"
        if switches.blas != "auto":
            return "its matmuls use no BLAS; use blas=auto"
        if switches.streams and switches.lays_out_subgraphs:
            return "hoisting=stream needs layout=read_order or policy"
        if switches.granularity == "operator":
            return (
                "granularity=operator would recompile all kernels for each new operator; use"
                " backend=stepwise"
            )
        if util.find_spec("triton") is None:
            return "Triton is not installed; pip install triton"
        if device == "cpu" and not is_interpreting():
            return (
                "its kernels run on a GPU; use backend=compiled, or set TRITON_INTERPRET=1 to"
                " interpret them (slow)"
            )
        return explain_unsupported_gpu() if device == "cuda" else explain_interpreter_conflict()

    def load(self, weights: Weights) -> None:
        """Copy the weights to the device.

        Raises:
            UnsupportedTrial: a parameter is too large.
        """
        self._memory = self._make_memory(weights)
        self._preparation = Preparation(self._memory, self.switches, self.tiling)

    def _make_memory(self, weights: Weights) -> DeviceMemory:
        return DeviceMemory(weights, self._device, self._forget_launches)

    def compile(self, plans: Mapping[int, Plan]) -> None:
        """Add plans; kernels are written again for the next mini-batch."""
        for type_id, plan in plans.items():
            if type_id not in self._memory.plans:
                self._memory.add(type_id, plan)
                self._preparation.forget_kernels()

    def count_programs(self) -> int:
        """Return the number of kernels written and of graphs captured so far."""
        return len(self._kernels) + self.n_captures

    @property
    def n_captures(self) -> int:
        """Number of captured graphs, each for a range of program sizes."""
        return self._launcher.n_captures

    # --- mini-batches ---

    def arrange(self, rows: Arrangement) -> None:
        """Write and upload a mini-batch, and grow the buffers."""
        self._prepared = self._preparation.prepare(rows)
        self._staging.upload(self._prepared.arrays)
        self._memory.arrange(rows)

    # --- work ---

    def run_together(self, runs: Sequence[Run]) -> None:
        """Start all forward stages or all backward stages of the current mini-batch."""
        kernels = _select_kernels(runs)
        self._start(*kernels)
        if kernels == BACKWARD:  # a pass without an update compiles everything, too
            self._launcher.prepare(UPDATE, self._list_work(UPDATE))

    def run_segments(self, segments: Sequence[Segment]) -> Callable[[], float]:
        """Start the program of all graph segments.

        Returns:
            Function that sums the losses when it is called.
        """
        self.run_together([run for segment in segments for run in segment.runs])
        return self._loss

    def _loss(self) -> float:
        self.synchronize()
        return sum(
            float(self._memory.collect_rows(type_id, plan.refs[plan.loss]).sum())
            for type_id, plan in self._memory.plans.items()
            if plan.loss is not None
        )

    def _start(self, *kernels: str) -> None:
        work = self._run(*kernels)
        if work:
            self.tally.n_launches += self._launcher.count_calls(work)

    def _run(self, *kernels: str) -> Launches:
        work = self._list_work(*kernels)
        if work:
            self._launcher.start(" ".join(kernels), work)
        return work

    def _list_work(self, *kernels: str) -> Launches:
        """Return the launches of kernels that have phases in the current mini-batch."""
        counts = {kernel: self._prepared.count_phases(kernel) for kernel in kernels}
        return [(self._launch(kernel), n) for kernel, n in counts.items() if n]

    @property
    def programs(self) -> Mapping[str, Words]:
        """Programs of the current mini-batch: of each kernel, and the one that runs ahead."""
        return dict(zip((*KERNELS, RUNS_AHEAD), self._prepared.arrays, strict=False))

    def bind(self, program: str) -> tuple[KernelModule, Launch]:
        """Return the kernel of a program with the arguments that it has now, for measurements."""
        kernel = "forward" if program == RUNS_AHEAD else program
        launch = self._launch(kernel)
        if program == RUNS_AHEAD:
            launch = replace(launch, slot=AHEAD)
        return self._preparation.modules[kernel], launch

    def _launch(self, name: str) -> Launch:
        """Return a kernel with its arguments, which is reused until an array moves."""
        module, known = self._preparation.modules[name], self._launches.get(name)
        if known is None or known[0] is not module:
            floats = tuple(self._memory.find_tensor(array) for array in module.floats)
            kernel, slot = self._load_kernel(module), KERNELS.index(name)
            lag = self._preparation.lag if name == "forward" else None
            launch = Launch(kernel, slot, self._compute_grid(), self._staging.words, floats, lag)
            known = self._launches[name] = module, launch
        return known[1]

    def _forget_launches(self) -> None:
        """Discard all addresses, after the work that uses them is done."""
        self.synchronize()
        self._launches.clear()
        self._launcher.forget()

    def _load_kernel(self, module: KernelModule) -> Kernel:
        use_own_kernel_cache()
        self._kernels.add(module.text)
        return load_generated(module.text, "run")

    def _compute_grid(self) -> int:
        if self._device.type == "cpu":
            return N_PROGRAMS_INTERPRETED
        properties = torch.cuda.get_device_properties(self._device)
        return int(properties.multi_processor_count) * PROGRAMS_PER_PROCESSOR

    def clear_gradients(self) -> None:
        """Zero the gradients that kernels add to; others are overwritten or pulled."""
        for name in self._preparation.kinds.added_to:
            self._memory.provide_gradient(name).zero_()

    def update(self, learning_rate: float) -> None:
        """Apply an SGD step to all parameters and their copies."""
        self._memory.set_learning_rate(learning_rate)
        self._run(UPDATE)  # not counted, as in all backends

    # --- results ---

    def read(self, type_id: int, ref: Ref, rows: slice = EVERY) -> NDArray[np.float32]:
        """Copy columns of a function's rows to NumPy.

        Logits that a gradient has replaced are recomputed.
        """
        self.synchronize()
        values = self._copy_rows(type_id, ref, rows)
        step = self._memory.plans[type_id].find_overwriting_step(ref)
        if step is None:
            return values
        label = self._memory.rows.types[type_id].pulls[step.label][rows]
        others = (self._copy_rows(type_id, other, rows) for other in (step.loss, step.log_sum))
        return loss_kernels.restore_logits(values, label, *others)

    def _copy_rows(self, type_id: int, ref: Ref, rows: slice) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._memory.collect_rows(type_id, ref)[rows].cpu().numpy()
        return values.copy()

    def gradients(self) -> Weights:
        """Copy the gradients of all parameters to NumPy, as dense arrays."""
        self.synchronize()
        having = self._preparation.kinds.summed
        return self._memory.collect_gradients(having, self._memory.yield_row_gradients())

    def read_weights(self) -> Weights:
        """Copy the parameters to NumPy."""
        self.synchronize()
        return self._memory.copy_weights()

    def facts(self) -> dict[str, str]:
        """Return the launch method and the precision of products, for records.

        With hoisting=stream also the number of streams: a model may have nothing for a second one.
        """
        calls, precision = self._launcher.words, self.switches.precision
        facts = {"backend": "cuda", "calls": calls, "precision": precision}
        if self.switches.streams:
            facts["streams"] = "1" if self._preparation.lag is None else "2"
        return facts | ({"interpreted": "true"} if self._device.type == "cpu" else {})

    def list_versions(self) -> dict[str, str]:
        """Return the versions of torch and Triton."""
        return {"torch": torch.__version__, "triton": metadata.version("triton")}


def _select_kernels(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the kernels that run the given stages."""
    is_backward = bool(runs) and runs[0][0].startswith("backward")
    return BACKWARD if is_backward else ("forward",)
