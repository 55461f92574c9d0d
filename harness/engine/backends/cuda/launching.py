"""Uploads of mini-batches, and launchers by phase, or as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dynbatch.harness.engine.backends.cuda.text import AHEAD, N_STAGES
from dynbatch.harness.engine.backends.cuda.words import Words
from dynbatch.harness.engine.lowering.plan import GROWTH

N_PINNED = 2  # the host fills one while the device reads the other


class Staging:
    """Uploads of the int32 arrays of mini-batches.

    The device's work is in order, on torch's current stream, so only the host has to wait: until
    the device has read a pinned buffer that it fills again. The address of the device's buffer
    changes only when arrays no longer fit.

    Args:
        on_move: called before the device's buffer is reallocated; it has to wait for all work.
    """

    def __init__(self, device: torch.device, on_move: Callable[[], None]) -> None:
        self._device, self._on_move = device, on_move
        self.n_uploads = 0
        self.words = torch.zeros(1, dtype=torch.int32, device=device)
        self._pinned = [self._allocate_pinned(1) for _ in range(N_PINNED)]
        self._copied: list[Any] = [None] * N_PINNED  # events: a pinned buffer has been read

    def upload(self, arrays: Sequence[Words]) -> None:
        """Copy arrays to the device, after a header with their offsets."""
        starts = compute_starts(arrays)
        n = int(starts[-1]) + len(arrays[-1])
        if n > len(self.words):
            self._on_move()  # waits for work that uses the memory to be freed
            size = int(n * GROWTH) + 1
            self.words = torch.zeros(size, dtype=torch.int32, device=self._device)
        k = self.n_uploads % N_PINNED
        if self._copied[k] is not None:
            self._copied[k].synchronize()  # the copy before the last one, done long ago
        if len(self._pinned[k]) < n:
            self._pinned[k] = self._allocate_pinned(len(self.words))
        source = self._pinned[k][:n]
        np.concatenate([starts, *arrays], out=cast(Words, source.numpy()))
        self._copied[k] = self._start_copy(source, self.words[:n])
        self.n_uploads += 1

    def _start_copy(self, source: Tensor, out: Tensor) -> Any:
        """Start a copy; return an event at its end, or None if it is complete."""
        out.copy_(source, non_blocking=True)
        if self._device.type == "cpu":
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _allocate_pinned(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int32, pin_memory=self._device.type == "cuda")


def compute_starts(arrays: Sequence[Words]) -> Words:
    """Return the offsets of consecutive arrays that follow a header with these offsets."""
    sizes = [len(arrays), *map(len, arrays)]
    return np.cumsum(sizes[:-1]).astype(np.int32)


# Capacities of graphs in phases; launches past the end of a program return immediately.
BUCKETS = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# enable_fp_fusion: fused multiply-add, as in cuBLAS; Triton's default depends on its version.
OPTIONS = {"num_warps": 4, "num_stages": N_STAGES, "enable_fp_fusion": True}


Kernel = Callable[..., Any]


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """Kernel that runs the program in a slot of the header, with its arguments.

    Attributes:
        words: buffer of int32 arrays.
        lag: None, or there is a second program, which runs ahead: phase k needs the results of its
            phases up to k + lag.
    """

    kernel: Kernel
    slot: int
    grid: int
    words: Tensor
    floats: tuple[Tensor, ...]
    lag: int | None = None

    def start(self, phase: int, slot: int | None = None) -> None:
        """Launch one phase, of the program in another slot if one is given."""
        kernel: Any = self.kernel
        slot = self.slot if slot is None else slot
        kernel[(self.grid,)](self.words, slot, phase, *self.floats, **OPTIONS)

    def start_all(self, n_phases: int) -> None:
        """Launch phases one after another, all that run ahead first."""
        for phase in range(self.count_ahead(n_phases)):
            self.start(phase, AHEAD)
        for phase in range(n_phases):
            self.start(phase)

    def start_on_two_streams(self, n_phases: int, side: torch.cuda.Stream) -> None:
        """Launch phases, those that run ahead on a second stream; each phase waits for its lag."""
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            ended = []
            for phase in range(self.count_ahead(n_phases)):
                self.start(phase, AHEAD)
                ended.append(side.record_event())
        for phase, event in enumerate(ended[self.lag :]):
            main.wait_event(event)
            self.start(phase)

    def count_ahead(self, n_phases: int) -> int:
        """Return the number of phases of the program that runs ahead of n phases."""
        return 0 if self.lag is None else n_phases + self.lag


Launches = Sequence[tuple[Launch, int]]  # launches that belong together, with numbers of phases


class PhaseByPhase:
    """Launcher of kernels that belong together, in order: each phase from Python.

    Attributes:
        n_captures: number of graphs captured so far.
        words: description of the method, for records.
    """

    n_captures = 0
    words = "one launch a phase"

    def count_calls(self, work: Launches) -> int:
        """Return the number of calls that `start` makes."""
        return sum(n_phases + launch.count_ahead(n_phases) for launch, n_phases in work)

    def prepare(self, name: str, work: Launches) -> None:
        """Do what precedes the first `start` of this work, which is nothing here."""

    def start(self, name: str, work: Launches) -> None:
        """Launch all phases; equal launches have the same name in all mini-batches."""
        for launch, n_phases in work:
            launch.start_all(n_phases)

    def forget(self) -> None:
        """Discard all launches, because arrays move; none are stored here."""


class GraphLauncher(PhaseByPhase):
    """Launcher that replays a CUDA graph, captured once per bucket of phases.

    A graph contains addresses, so it is captured again when a launch changes.
    """

    words = "graphs"

    def __init__(self) -> None:
        self.n_captures = 0
        self._side: torch.cuda.Stream | None = None
        self._graphs: dict[tuple[str, tuple[int, ...]], tuple[list[Launch], Any]] = {}

    def count_calls(self, work: Launches) -> int:
        """Return 1."""
        return 1

    def prepare(self, name: str, work: Launches) -> None:
        """Capture a graph with capacity for all phases, unless there is one."""
        self._provide_graph(name, work)

    def start(self, name: str, work: Launches) -> None:
        """Replay a graph with capacity for all phases."""
        self._provide_graph(name, work).replay()

    def _provide_graph(self, name: str, work: Launches) -> Any:
        buckets = tuple(select_bucket(n_phases) for _, n_phases in work)
        launches = [launch for launch, _ in work]
        captured, graph = self._graphs.get((name, buckets), ([], None))
        if captured != launches:  # compared by identity: a moved array makes a new launch
            graph = self._capture_graph(launches, buckets)
            self._graphs[name, buckets] = launches, graph
        return graph

    def forget(self) -> None:
        """Discard all graphs, because they contain addresses."""
        self._graphs.clear()

    def _capture_graph(self, launches: Sequence[Launch], buckets: Sequence[int]) -> Any:
        """Capture all phases of the buckets, after an empty launch that compiles each kernel."""
        for launch, bucket in zip(launches, buckets, strict=True):
            launch.start(bucket)  # past the end of the program: computes nothing
        torch.cuda.synchronize()
        if self._side is None and any(launch.lag is not None for launch in launches):
            # Once, because torch has a pool of 32 streams, one of which captures; none is created
            # in a capture.
            self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch, bucket in zip(launches, buckets, strict=True):
                if launch.lag is None or self._side is None:
                    launch.start_all(bucket)
                else:
                    launch.start_on_two_streams(bucket, self._side)
        self.n_captures += 1
        return graph


def select_bucket(n_phases: int) -> int:
    """Return the number of phases of the smallest graph with enough capacity."""
    for bucket in BUCKETS:
        if n_phases <= bucket:
            return bucket
    return -(-n_phases // BUCKETS[-1]) * BUCKETS[-1]
