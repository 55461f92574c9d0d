"""Streams, uploads, and launchers by phase, or as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from dynbatch.harness.engine.backends.cuda.words import Words
from dynbatch.harness.engine.lowering.plan import GROWTH

Work = Callable[[], object]
Mark = Any  # a point in the work of a stream; None: nothing to wait for


class Stream(StrEnum):
    """Streams of a device. Each runs its work in order; two streams synchronize only at marks."""

    COMPUTE = "compute"
    COPY = "copy"


class Streams:
    """Streams of one device; on a CPU, work runs when it is queued.

    Tests substitute streams that run in the worst order that marks allow.
    """

    def do(self, stream: Stream, work: Work) -> None:
        """Queue work."""
        work()

    def mark(self, stream: Stream) -> Mark:
        """Return a mark after all work queued so far."""
        return None

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Let later work of a stream wait for a mark of another stream."""

    def reach(self, mark: Mark) -> None:
        """Wait on the host until a mark is reached."""

    def synchronize(self) -> None:
        """Wait on the host until all work is done."""


class CudaStreams(Streams):
    """CUDA streams: torch's current stream computes, a second one copies."""

    def __init__(self) -> None:
        self._copy: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def _stream(self, stream: Stream) -> Any:
        return self._copy if stream is Stream.COPY else torch.cuda.current_stream()

    def do(self, stream: Stream, work: Work) -> None:
        """Queue work on the CUDA stream."""
        with torch.cuda.stream(self._stream(stream)):
            work()

    def mark(self, stream: Stream) -> Mark:
        """Record an event."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream(stream))
        return event

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Let later work of a stream wait for an event."""
        if mark is not None:
            self._stream(stream).wait_event(mark)

    def reach(self, mark: Mark) -> None:
        """Wait on the host for an event."""
        if mark is not None:
            mark.synchronize()

    def synchronize(self) -> None:
        """Wait on the host for the device."""
        torch.cuda.synchronize()


N_PINNED = 2  # the host fills one while the device reads the other


@dataclass(frozen=True, eq=False, slots=True)
class Upload:
    """Upload of int32 arrays to a device buffer."""

    buffer: int
    mark: Mark


class Staging:
    """Uploads of the int32 arrays of mini-batches, before they are needed.

    The addresses of the device buffers change only when arrays no longer fit.

    Args:
        on_move: called before a device buffer is reallocated; it has to wait for all work.
        ahead: whether a stream of its own uploads arrays to a second buffer while those of the last
            mini-batch are still in use.
    """

    def __init__(
        self, device: torch.device, streams: Streams, on_move: Callable[[], None], *, ahead: bool
    ) -> None:
        self._device, self._streams, self._on_move = device, streams, on_move
        self._stream = Stream.COPY if ahead else Stream.COMPUTE
        self.n_uploads = self.current = 0
        n_buffers = 2 if ahead else 1
        self.buffers = [torch.zeros(1, dtype=torch.int32, device=device) for _ in range(n_buffers)]
        self._pinned = [self._allocate_pinned(1) for _ in range(N_PINNED)]
        self._copied: list[Mark] = [None] * N_PINNED  # reached when a pinned buffer has been read
        self._released: list[Mark] = [None] * n_buffers  # reached when a buffer is free again

    @property
    def words(self) -> Tensor:
        """Buffer of the current mini-batch."""
        return self.buffers[self.current]

    def upload(self, arrays: Sequence[Words]) -> Upload:
        """Copy arrays to the buffer that is not in use, after a header with their offsets."""
        starts = compute_starts(arrays)
        n = int(starts[-1]) + len(arrays[-1])
        target = (self.current + 1) % len(self.buffers)
        self._make_room(target, n)
        k = self.n_uploads % N_PINNED
        self._streams.reach(self._copied[k])  # the copy before the last one, done long ago
        if len(self._pinned[k]) < n:
            self._pinned[k] = self._allocate_pinned(len(self.buffers[target]))
        source, out = self._pinned[k][:n], self.buffers[target][:n]
        np.concatenate([starts, *arrays], out=cast(Words, source.numpy()))
        self._streams.wait(self._stream, self._released[target])
        self._streams.do(self._stream, lambda: out.copy_(source, non_blocking=True))
        self._copied[k] = self._streams.mark(self._stream)
        self.n_uploads += 1
        return Upload(target, self._copied[k])

    def take(self, upload: Upload) -> None:
        """Use an upload from here on, and release the buffer that was in use."""
        self._released[self.current] = self._streams.mark(Stream.COMPUTE)
        self._streams.wait(Stream.COMPUTE, upload.mark)
        self.current = upload.buffer

    def _make_room(self, target: int, n: int) -> None:
        if n <= len(self.buffers[target]):
            return
        self._on_move()  # waits for work that uses the memory to be freed
        self.buffers[target] = torch.zeros(
            int(n * GROWTH) + 1, dtype=torch.int32, device=self._device
        )
        self._released[target] = self._streams.mark(Stream.COMPUTE)  # which writes the zeros

    def _allocate_pinned(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int32, pin_memory=self._device.type == "cuda")


def compute_starts(arrays: Sequence[Words]) -> Words:
    """Return the offsets of consecutive arrays that follow a header with these offsets."""
    sizes = [len(arrays), *map(len, arrays)]
    return np.cumsum(sizes[:-1]).astype(np.int32)


# Capacities of graphs in phases; launches past the end of a program return immediately.
BUCKETS = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# num_stages: two would mean one buffer, so that each step of a product waits for its operands.
# enable_fp_fusion: fused multiply-add, as in cuBLAS; Triton's default depends on its version.
OPTIONS = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True}


Kernel = Callable[..., Any]


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """Kernel that runs the program in a slot of the header, with its arguments.

    Attributes:
        words: buffer of int32 arrays.
    """

    kernel: Kernel
    slot: int
    grid: int
    words: Tensor
    floats: tuple[Tensor, ...]

    def start(self, phase: int) -> None:
        """Launch one phase."""
        kernel: Any = self.kernel
        kernel[(self.grid,)](self.words, self.slot, phase, *self.floats, **OPTIONS)


Launches = Sequence[tuple[Launch, int]]  # launches that belong together, with numbers of phases


class Launcher(Protocol):
    """Launcher of kernels that belong together, in order.

    `start` launches all phases; its `name` identifies the launches and is equal in all
    mini-batches. `count_calls` returns the number of calls that `start` makes. `forget` discards
    all launches, because arrays move.
    """

    n_captures: int
    words: str

    def count_calls(self, work: Launches) -> int: ...
    def start(self, name: str, work: Launches) -> None: ...
    def forget(self) -> None: ...


class PhaseByPhase:
    """Launcher that launches each phase from Python."""

    n_captures = 0
    words = "one launch a phase"

    def count_calls(self, work: Launches) -> int:
        """Return the number of phases."""
        return sum(n_phases for _, n_phases in work)

    def start(self, name: str, work: Launches) -> None:
        """Launch all phases from Python."""
        for launch, n_phases in work:
            for phase in range(n_phases):
                launch.start(phase)

    def forget(self) -> None:
        """Do nothing, because no launches are stored."""


class GraphLauncher:
    """Launcher that replays a CUDA graph, captured once per bucket of phases.

    A graph contains addresses, so it is captured again when a launch changes.
    """

    words = "graphs"

    def __init__(self) -> None:
        self.n_captures = 0
        self._graphs: dict[tuple[str, tuple[int, ...]], tuple[list[Launch], Any]] = {}

    def count_calls(self, work: Launches) -> int:
        """Return 1."""
        return 1

    def start(self, name: str, work: Launches) -> None:
        """Replay a graph with capacity for all phases."""
        buckets = tuple(select_bucket(n_phases) for _, n_phases in work)
        launches = [launch for launch, _ in work]
        captured, graph = self._graphs.get((name, buckets), ([], None))
        if captured != launches:  # compared by identity: a moved array makes a new launch
            graph = self._capture_graph(launches, buckets)
            self._graphs[name, buckets] = launches, graph
        assert graph is not None
        graph.replay()

    def forget(self) -> None:
        """Discard all graphs, because they contain addresses."""
        self._graphs.clear()

    def _capture_graph(self, launches: Sequence[Launch], buckets: Sequence[int]) -> Any:
        """Capture all phases of the buckets, after an empty launch that compiles each kernel."""
        for launch, bucket in zip(launches, buckets, strict=True):
            launch.start(bucket)  # past the end of the program: computes nothing
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch, bucket in zip(launches, buckets, strict=True):
                for phase in range(bucket):
                    launch.start(phase)
        self.n_captures += 1
        return graph


def select_bucket(n_phases: int) -> int:
    """Return the number of phases of the smallest graph with enough capacity."""
    for bucket in BUCKETS:
        if n_phases <= bucket:
            return bucket
    return -(-n_phases // BUCKETS[-1]) * BUCKETS[-1]
