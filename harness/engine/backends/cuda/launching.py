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


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """A kernel over all phases of the program in a slot of the header."""

    kernel: Callable[..., Any]
    slot: int
    n_phases: int
    grid: int
    words: Tensor
    rate: Tensor
    floats: tuple[Tensor, ...]

    def start(self, phase: int) -> None:
        """Start one phase."""
        kernel: Any = self.kernel
        kernel[(self.grid,)](self.words, self.slot, phase, self.rate, *self.floats, **OPTIONS)

    @property
    def addresses(self) -> tuple[int, ...]:
        """Of everything that it is called with."""
        return tuple(tensor.data_ptr() for tensor in (self.words, self.rate, *self.floats))


class Launcher(Protocol):
    """Starts launches that belong together, in order; returns how many calls that took."""

    n_captures: int

    def start(self, name: str, launches: Sequence[Launch]) -> int:
        """Start all phases of all of them; name: what they are, the same in every mini-batch."""


class PhaseByPhase:
    """One launch a phase."""

    n_captures = 0

    def start(self, name: str, launches: Sequence[Launch]) -> int:
        """Start them from Python."""
        for launch in launches:
            for phase in range(launch.n_phases):
                launch.start(phase)
        return sum(launch.n_phases for launch in launches)


class Graphs:
    """One replay of a graph, captured once for every bucket of phases.

    Captured anew when an array has moved, since a graph holds addresses.
    """

    def __init__(self) -> None:
        self.n_captures = 0
        self._graphs: dict[tuple[str, tuple[int, ...]], Any] = {}
        self._addresses: dict[tuple[str, tuple[int, ...]], tuple[tuple[int, ...], ...]] = {}

    def start(self, name: str, launches: Sequence[Launch]) -> int:
        """Replay a graph with room for all phases."""
        key = (name, tuple(bucket_of(launch.n_phases) for launch in launches))
        addresses = tuple(launch.addresses for launch in launches)
        if self._addresses.get(key) != addresses:
            self._graphs[key] = self._captured(launches, key[1])
            self._addresses[key] = addresses
        self._graphs[key].replay()
        return 1

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
