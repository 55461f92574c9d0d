"""Streams, uploads, and how kernels start: by phase, as one CUDA graph, or in one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from harness.engine.backends.cuda.words import Words
from harness.engine.lowering.plan import GROWTH
from harness.errors import UnsupportedTrial

Work = Callable[[], object]
Mark = Any  # what a stream has reached; None: nothing to wait for


class Stream(StrEnum):
    """Work of one stream is done in order; two streams wait for each other at marks alone."""

    COMPUTE = "compute"
    COPY = "copy"


class Streams:
    """Queues of one device, on a CPU: work is done when it is queued.

    Tests have some that run in the worst order that marks allow.
    """

    def do(self, stream: Stream, work: Work) -> None:
        """Queue work."""
        work()

    def mark(self, stream: Stream) -> Mark:
        """Return a mark behind all that was queued so far."""
        return None

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Let a stream go on only behind a mark of another."""

    def reach(self, mark: Mark) -> None:
        """Wait on the host until a mark is reached."""

    def synchronize(self) -> None:
        """Wait on the host until all is done."""


class CudaStreams(Streams):
    """Torch's current stream computes, another copies."""

    def __init__(self) -> None:
        self._copy: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def _stream(self, stream: Stream) -> Any:
        return self._copy if stream is Stream.COPY else torch.cuda.current_stream()

    def do(self, stream: Stream, work: Work) -> None:
        """Start it there."""
        with torch.cuda.stream(self._stream(stream)):
            work()

    def mark(self, stream: Stream) -> Mark:
        """Record an event."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream(stream))
        return event

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Wait for an event on the device."""
        if mark is not None:
            self._stream(stream).wait_event(mark)

    def reach(self, mark: Mark) -> None:
        """Wait for an event."""
        if mark is not None:
            mark.synchronize()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()


N_PINNED = 2  # so that one is filled while the device still reads the other


@dataclass(frozen=True, eq=False, slots=True)
class Upload:
    """Words in one of the buffers on the device, once a mark is reached."""

    buffer: int
    mark: Mark


class Staging:
    """Brings the words of a mini-batch to the device before they are needed.

    on_move: called before words get another place on the device; has to wait for all work.
    ahead: whether words are uploaded while those of the last mini-batch are still read, by a stream
    of their own and to a second buffer. n_uploads: copies so far. current: the buffer that is read.
    The words' places on the device stay until they no longer fit.
    """

    def __init__(
        self, device: torch.device, streams: Streams, on_move: Callable[[], None], *, ahead: bool
    ) -> None:
        self._device, self._streams, self._on_move = device, streams, on_move
        self._stream = Stream.COPY if ahead else Stream.COMPUTE
        self.n_uploads = self.current = 0
        n_buffers = 2 if ahead else 1
        self.buffers = [torch.zeros(1, dtype=torch.int32, device=device) for _ in range(n_buffers)]
        self._pinned = [self._pinned_room(1) for _ in range(N_PINNED)]
        self._copied: list[Mark] = [None] * N_PINNED  # reached when a pinned buffer was read
        self._released: list[Mark] = [None] * n_buffers  # reached when a mini-batch was computed

    @property
    def words(self) -> Tensor:
        """Those of the mini-batch that is computed."""
        return self.buffers[self.current]

    def upload(self, arrays: Sequence[Words]) -> Upload:
        """Bring arrays to the buffer that is not read, behind a header of where each begins."""
        starts = starts_of(arrays)
        n = int(starts[-1]) + len(arrays[-1])
        target = (self.current + 1) % len(self.buffers)
        self._make_room(target, n)
        k = self.n_uploads % N_PINNED
        self._streams.reach(self._copied[k])  # of the copy before the last; over since long
        if len(self._pinned[k]) < n:
            self._pinned[k] = self._pinned_room(len(self.buffers[target]))
        source, out = self._pinned[k][:n], self.buffers[target][:n]
        np.concatenate([starts, *arrays], out=cast(Words, source.numpy()))
        self._streams.wait(self._stream, self._released[target])
        self._streams.do(self._stream, lambda: out.copy_(source, non_blocking=True))
        self._copied[k] = self._streams.mark(self._stream)
        self.n_uploads += 1
        return Upload(target, self._copied[k])

    def take(self, upload: Upload) -> None:
        """Compute with what was uploaded from here on, and no more with what was before."""
        self._released[self.current] = self._streams.mark(Stream.COMPUTE)
        self._streams.wait(Stream.COMPUTE, upload.mark)
        self.current = upload.buffer

    def _make_room(self, target: int, n: int) -> None:
        if n <= len(self.buffers[target]):
            return
        self._on_move()  # waits for what reads or writes memory that goes away
        self.buffers[target] = torch.zeros(
            int(n * GROWTH) + 1, dtype=torch.int32, device=self._device
        )
        self._released[target] = self._streams.mark(Stream.COMPUTE)  # its zeros are written there

    def _pinned_room(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int32, pin_memory=self._device.type == "cuda")


def starts_of(arrays: Sequence[Words]) -> Words:
    """Where arrays begin that lie one behind the other, and behind these words themselves."""
    sizes = [len(arrays), *map(len, arrays)]
    return np.cumsum(sizes[:-1]).astype(np.int32)


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
    floats: tuple[Tensor, ...]

    def start(self, phase: int) -> None:
        """Start one phase."""
        kernel: Any = self.kernel
        kernel[(self.grid,)](self.words, self.slot, phase, *self.floats, **OPTIONS)


Launches = Sequence[tuple[Launch, int]]  # launches that belong together, and phases of each


class Launcher(Protocol):
    """Starts launches that belong together, in order.

    words: of how it starts, for a record. start: all phases of all of them; name: what they are,
    the same in every mini-batch. n_calls: how many calls that takes. forget: lets go of all
    launches, since arrays move.
    """

    n_captures: int
    words: str

    def n_calls(self, work: Launches) -> int: ...
    def start(self, name: str, work: Launches) -> None: ...
    def forget(self) -> None: ...


class PhaseByPhase:
    """One launch a phase."""

    n_captures = 0
    words = "one launch a phase"

    def n_calls(self, work: Launches) -> int:
        """One a phase."""
        return sum(n_phases for _, n_phases in work)

    def start(self, name: str, work: Launches) -> None:
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

    def n_calls(self, work: Launches) -> int:
        """One."""
        return 1

    def start(self, name: str, work: Launches) -> None:
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

    def n_calls(self, work: Launches) -> int:
        """One a kernel."""
        return len(work)

    def start(self, name: str, work: Launches) -> None:
        """Start one after the other, each with the barrier's counter at 0."""
        for launch, _ in work:
            arguments = (launch.words, launch.slot, self._barrier, *launch.floats)
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
