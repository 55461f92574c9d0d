"""How kernels are started: phase by phase, all phases as one CUDA graph, or in one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from harness.errors import UnsupportedTrial

# Phases that a graph has room for; launches beyond a program's own end leave at once.
BUCKETS = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# Three stages: with two there is one buffer, and each step of a product waits for its own operands.
# A product and a sum in one rounding, as cuBLAS has them; the default depends on the release.
OPTIONS = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True}
COOPERATIVE = {"launch_cooperative_grid": True}  # CUDA refuses what cannot be resident at once
WARP_SIZE = 32
REGISTER_UNIT = 8  # of a thread, in which registers are given out
RESERVED_SHARED_BYTES = 1024  # of every program, by CUDA


Kernel = Callable[..., Any]


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """A kernel of the program in a slot of the header, with all that it is called with."""

    kernel: Kernel
    slot: int
    grid: int
    words: Tensor
    rate: Tensor
    floats: tuple[Tensor, ...]

    def start(self, phase: int) -> None:
        """Start one phase."""
        kernel: Any = self.kernel
        kernel[(self.grid,)](self.words, self.slot, phase, self.rate, *self.floats, **OPTIONS)


Work = Sequence[tuple[Launch, int]]  # launches that belong together, and phases of each


class Launcher(Protocol):
    """Starts launches that belong together, in order."""

    n_captures: int
    words: str  # of how it starts, for a record

    def n_calls(self, work: Work) -> int:
        """How many calls that takes."""

    def start(self, name: str, work: Work) -> None:
        """Start all phases of all of them; name: what they are, the same in every mini-batch."""

    def forget(self) -> None:
        """Let go of all launches, since arrays move."""


class PhaseByPhase:
    """One launch a phase."""

    n_captures = 0
    words = "one launch a phase"

    def n_calls(self, work: Work) -> int:
        """One a phase."""
        return sum(n_phases for _, n_phases in work)

    def start(self, name: str, work: Work) -> None:
        """Start them from Python."""
        for launch, n_phases in work:
            for phase in range(n_phases):
                launch.start(phase)

    def forget(self) -> None:
        """There are none."""


class Graphs:
    """One replay of a graph, captured once for every bucket of phases.

    Captured anew when a launch is another, since a graph holds addresses.
    """

    words = "graphs"

    def __init__(self) -> None:
        self.n_captures = 0
        self._graphs: dict[tuple[str, tuple[int, ...]], tuple[list[Launch], Any]] = {}

    def n_calls(self, work: Work) -> int:
        """One."""
        return 1

    def start(self, name: str, work: Work) -> None:
        """Replay a graph with room for all phases."""
        buckets = tuple(bucket_of(n_phases) for _, n_phases in work)
        launches = [launch for launch, _ in work]
        captured, graph = self._graphs.get((name, buckets), ([], None))
        if captured != launches:  # compared by identity: a launch is made anew when an array moves
            graph = self._captured(launches, buckets)
            self._graphs[name, buckets] = launches, graph
        assert graph is not None
        graph.replay()

    def forget(self) -> None:
        """A graph holds addresses."""
        self._graphs.clear()

    def _captured(self, launches: Sequence[Launch], buckets: Sequence[int]) -> Any:
        """Capture empty phases, after each kernel has been compiled and loaded by one of them."""
        for launch, bucket in zip(launches, buckets, strict=True):
            launch.start(bucket)  # beyond its end: nothing is computed
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch, bucket in zip(launches, buckets, strict=True):
                for phase in range(bucket):
                    launch.start(phase)
        self.n_captures += 1
        return graph


@dataclass(frozen=True, slots=True)
class Processor:
    """What one of a GPU's processors has for all programs that are resident at a time."""

    n_registers: int
    shared_bytes: int
    n_threads: int

    def n_resident(self, n_registers: int, shared_bytes: int) -> int:
        """How many programs fit that take so many registers a thread, and so much memory each."""
        n_threads = int(OPTIONS["num_warps"]) * WARP_SIZE
        per_thread = -(-n_registers // REGISTER_UNIT) * REGISTER_UNIT
        return min(
            self.n_registers // (per_thread * n_threads),
            self.shared_bytes // (shared_bytes + RESERVED_SHARED_BYTES),
            self.n_threads // n_threads,
        )


class Persistent:
    """One launch of each kernel, of no more programs than are resident at once."""

    n_captures = 0
    words = "one launch a pass"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._barrier = torch.zeros(1, dtype=torch.int32, device=device)
        self._grids: dict[Kernel, int] = {}

    def n_calls(self, work: Work) -> int:
        """One a kernel."""
        return len(work)

    def start(self, name: str, work: Work) -> None:
        """Start one after the other, each with the barrier's counter at 0."""
        for launch, _ in work:
            arguments = (launch.words, launch.slot, self._barrier, launch.rate, *launch.floats)
            kernel: Any = launch.kernel
            if self._device.type == "cpu":  # interpreted, where programs run one after the other
                self._barrier.zero_()
                kernel[(1,)](*arguments, **OPTIONS)
                continue
            if launch.kernel not in self._grids:
                self._grids[launch.kernel] = self._grid(launch, arguments)
            self._barrier.zero_()
            grid = (self._grids[launch.kernel],)
            kernel[grid](*arguments, **OPTIONS, **COOPERATIVE)

    def forget(self) -> None:
        """There are none; a kernel's grid stays."""

    def _grid(self, launch: Launch, arguments: Sequence[Any]) -> int:
        """As many programs as were asked for, or as are resident; asks the compiled kernel."""
        kernel: Any = launch.kernel
        compiled = kernel.warmup(*arguments, grid=(1,), **OPTIONS, **COOPERATIVE)
        compiled._init_handles()
        properties: Any = torch.cuda.get_device_properties(self._device)
        processor = Processor(
            properties.regs_per_multiprocessor,
            properties.shared_memory_per_multiprocessor,
            properties.max_threads_per_multi_processor,
        )
        n_resident = processor.n_resident(compiled.n_regs, compiled.metadata.shared)
        return persistent_grid(launch.grid, properties.multi_processor_count, n_resident)


def persistent_grid(wanted: int, n_processors: int, n_resident: int) -> int:
    """Programs of a launch that waits for all of them.

    Raises UnsupportedTrial where not even one is resident.
    """
    if n_resident < 1:
        raise UnsupportedTrial(
            "a kernel takes more than a processor of this GPU has; use persistent=false"
        )
    return min(wanted, n_processors * n_resident)


def bucket_of(n_phases: int) -> int:
    """The room of the smallest graph that has enough."""
    for bucket in BUCKETS:
        if n_phases <= bucket:
            return bucket
    return -(-n_phases // BUCKETS[-1]) * BUCKETS[-1]
