"""How kernels are started: phase by phase, or all phases as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

# Phases that a graph has room for; launches beyond a program's own end leave at once.
BUCKETS = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# A product and a sum in one rounding, as cuBLAS has them; the default depends on the release.
OPTIONS = {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": True}


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

    def n_calls(self, work: Work) -> int:
        """How many calls that takes."""

    def start(self, name: str, work: Work) -> None:
        """Start all phases of all of them; name: what they are, the same in every mini-batch."""


class PhaseByPhase:
    """One launch a phase."""

    n_captures = 0

    def n_calls(self, work: Work) -> int:
        """One a phase."""
        return sum(n_phases for _, n_phases in work)

    def start(self, name: str, work: Work) -> None:
        """Start them from Python."""
        for launch, n_phases in work:
            for phase in range(n_phases):
                launch.start(phase)


class Graphs:
    """One replay of a graph, captured once for every bucket of phases.

    Captured anew when a launch is another, since a graph holds addresses.
    """

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


def bucket_of(n_phases: int) -> int:
    """The room of the smallest graph that has enough."""
    for bucket in BUCKETS:
        if n_phases <= bucket:
            return bucket
    return -(-n_phases // BUCKETS[-1]) * BUCKETS[-1]
