"""CUDA graphs and uploads of the CUDA backend: captured, counted, replayed and waited for.

NumPy computes in place of kernels. A fake of torch's graphs stores the launches of a capture, with
the memory that they had then, and repeats them at each replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dynbatch.harness.engine import engine
from dynbatch.harness.engine.backends.cuda import backend as cuda
from dynbatch.harness.engine.backends.cuda import launching
from dynbatch.harness.engine.backends.cuda.launching import (
    N_PINNED,
    GraphLauncher,
    Launches,
    Staging,
)
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.backends.cuda.text import AHEAD
from dynbatch.harness.engine.backends.cuda.words import Words
from dynbatch.harness.engine.switches import Switches
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import BINARY, chain, example
from tests.support.engine_runs import prepared
from tests.support.fake_time import NullClock
from tests.support.sketch_models import Sketch
from tests.support.walked_backend import Launch, Walk, WalkedBackend, read_program

Patch = pytest.MonkeyPatch
N_PASSES = 3
Work = Callable[[], None]


class FakeStream:
    """Stream of a capture.

    Attributes:
        waits: Numbers of the launches that its next one follows; None: it is in no capture.
    """

    def __init__(self) -> None:
        self.waits: set[int] | None = None

    def wait_stream(self, other: FakeStream) -> None:
        self.wait_event(other.record_event())

    def wait_event(self, event: set[int] | None) -> None:
        if event is not None:
            self.waits = (self.waits or set()) | event

    def record_event(self) -> set[int] | None:
        return None if self.waits is None else set(self.waits)


class FakeGraph:
    """Graph whose launches are stored during a capture; other launches run immediately.

    A replay runs them in a random order that events and streams allow.

    Attributes:
        current: The stream of launches.
        choices: Draws the orders.
    """

    captured: FakeGraph | None = None
    current = FakeStream()
    choices = Random(3)

    def __init__(self) -> None:
        self.launches: list[tuple[Work, set[int]]] = []

    def replay(self) -> None:
        waiting = dict(enumerate(self.launches))
        while waiting:
            ready = [k for k, (_, waits) in waiting.items() if not waits & waiting.keys()]
            work, _ = waiting.pop(self.choices.choice(ready))
            work()

    @classmethod
    @contextmanager
    def capture(cls, graph: FakeGraph) -> Iterator[None]:
        cls.captured, cls.current.waits = graph, set()
        yield
        followed = set[int]().union(*(waits for _, waits in graph.launches), cls.current.waits)
        cls.captured = None
        for stream in (cls.current, *STREAMS):  # none is in a capture any more
            stream.waits = None
        assert followed == set(range(len(graph.launches))), "a stream is not joined"

    @classmethod
    @contextmanager
    def select(cls, stream: FakeStream) -> Iterator[None]:
        before, cls.current = cls.current, stream
        yield
        cls.current = before

    @classmethod
    def launch(cls, work: Work) -> None:
        if cls.captured is None or cls.current.waits is None:
            work()
        else:
            number = len(cls.captured.launches)
            cls.captured.launches.append((work, cls.current.waits))
            cls.current.waits = {number}


STREAMS: list[FakeStream] = []  # created in a test


def make_stream() -> FakeStream:
    assert FakeGraph.captured is None, "a stream is created in a capture"
    STREAMS.append(FakeStream())
    return STREAMS[-1]


class WalkedKernel:
    """Kernel that is launched as a compiled one, and whose phases NumPy computes."""

    def __init__(self, backend: GraphBackend, module: KernelModule) -> None:
        self._backend, self._module = backend, module

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        return lambda *arguments, **_: FakeGraph.launch(partial(self._walk, *arguments))

    def _walk(self, words: torch.Tensor, slot: int, phase: int, *floats: torch.Tensor) -> None:
        uploaded = words.numpy()
        program = uploaded[uploaded[slot] :]
        if phase >= program[0]:
            return
        arrays = dict(zip(self._module.floats, (one.numpy() for one in floats), strict=True))
        places = self._backend._preparation.places
        indices = {array: uploaded[uploaded[place] :] for array, place in places.items()}
        walk = Walk(Launch(self._module, slot, arrays), indices)
        walk.phase(read_program(self._module, program)[phase])


class GraphBackend(WalkedBackend):
    """Backend that launches as on CUDA."""

    launcher_type: type[GraphLauncher] = GraphLauncher
    _run, _list_work = cuda.Backend._run, cuda.Backend._list_work

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        super().__init__(switches, "cpu", threads)

    def _choose_launcher(self) -> GraphLauncher:
        return self.launcher_type()

    def _load_kernel(self, module: KernelModule) -> Any:
        self._kernels.add(module.text)
        return WalkedKernel(self, module)


@pytest.fixture
def adapt(monkeypatch: Patch) -> Callable[..., tuple[Adapter, list[Sequence[Any]]]]:
    """Return a function that builds an adapter and mini-batches of several sizes."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", FakeGraph.capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    STREAMS.clear()
    monkeypatch.setattr(torch.cuda, "Stream", make_stream)
    monkeypatch.setattr(torch.cuda, "stream", FakeGraph.select)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: FakeGraph.current)

    def build(
        backend: type[WalkedBackend], name: str, device: str = "cpu", **switches: Any
    ) -> tuple[Adapter, list[Sequence[Any]]]:
        monkeypatch.setattr(engine, "choose_backend", lambda *_: (backend, ""))
        model, instances, weights = example(name)
        parts = [instances[:1], instances * 3, instances[1:], instances * 2, instances]
        return prepared(model, weights, Switches(**switches), device=device), parts

    return build


def train(
    adapter: Adapter, mini_batches: list[Sequence[Any]], n_passes: int = N_PASSES
) -> dict[str, Any]:
    for _ in range(n_passes):
        for mini_batch in mini_batches:
            adapter.load(mini_batch)
            adapter.run(NullClock())
    return dict(adapter.parameters())


@pytest.mark.parametrize("name", ["tree_lstm", "lattice_lstm"])
def test_replays_train_as_launches_do(adapt: Any, name: str) -> None:
    expected = train(*adapt(WalkedBackend, name))
    adapter, parts = adapt(GraphBackend, name)
    found = train(adapter, parts)
    for key, weight in expected.items():
        np.testing.assert_array_equal(found[key], weight)
    assert adapter.counters().n_launches == 2  # the update is not counted
    assert adapter.engine.backend.n_captures > 3


UNSHARED = Sketch([("leaf", []), ("leaf", []), ("inner", [0, 1])])
CHANGES = {
    "kernels": ("shared_children", [[UNSHARED] * 20, BINARY[:1], [UNSHARED]]),
    "floats": ("chain_lstm", [[chain(60)], [chain(2)] * 40, [chain(60)]]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_graphs_follow_kernels_and_floats_that_change_alone(adapt: Any, change: str) -> None:
    """The uploaded words do not move, so they do not discard the graphs."""
    name, mini_batches = CHANGES[change]
    expected = train(adapt(WalkedBackend, name)[0], mini_batches, 1)
    adapter = adapt(GraphBackend, name)[0]
    adapter.load(mini_batches[0])
    adapter.run(NullClock(), update=False)
    words = adapter.engine.backend._staging.words
    found = train(adapter, mini_batches, 1)
    assert adapter.engine.backend._staging.words is words
    for key, weight in expected.items():
        np.testing.assert_array_equal(found[key], weight)


STREAMED = ("child_sum", "lattice_lstm")


def start_without_waits(launch: launching.Launch, n_phases: int, side: FakeStream) -> None:
    """Launch both programs on two streams, which are joined at their end only."""
    main = FakeGraph.current
    side.wait_stream(main)
    with FakeGraph.select(side):
        for phase in range(launch.count_ahead(n_phases)):
            launch.start(phase, AHEAD)
    for phase in range(n_phases):
        launch.start(phase)
    main.wait_stream(side)


@pytest.mark.parametrize(
    ("name", "n_passes"), [*((name, N_PASSES) for name in STREAMED), ("parser", 1)]
)
def test_two_streams_train_as_one_in_any_order_that_events_allow(
    adapt: Any, name: str, n_passes: int
) -> None:
    expected = train(*adapt(WalkedBackend, name, hoisting="stream"), n_passes)
    found = train(*adapt(GraphBackend, name, hoisting="stream"), n_passes)
    for key, weight in expected.items():
        np.testing.assert_array_equal(found[key], weight)


@pytest.mark.parametrize("name", STREAMED)
def test_a_missing_wait_between_streams_is_noticed(
    adapt: Any, name: str, monkeypatch: Patch
) -> None:
    expected = train(*adapt(WalkedBackend, name, hoisting="stream"))
    monkeypatch.setattr(launching.Launch, "start_on_two_streams", start_without_waits)
    found = train(*adapt(GraphBackend, name, hoisting="stream"))
    assert not all(np.array_equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize(("hoisting", "n_streams"), [(True, 0), ("stream", 1)])
def test_all_graphs_share_one_second_stream(adapt: Any, hoisting: Any, n_streams: int) -> None:
    """PyTorch's pool has 32 streams, so the 33rd would be the first one, which may capture."""
    adapter, parts = adapt(GraphBackend, "child_sum", hoisting=hoisting)
    train(adapter, parts, 1)
    assert adapter.engine.backend.n_captures > 3
    assert len(STREAMS) == n_streams


def test_a_stream_outside_of_the_capture_is_noticed(adapt: Any, monkeypatch: Patch) -> None:
    """It runs once, during the capture, and in no replay."""
    expected = train(*adapt(WalkedBackend, "child_sum", hoisting="stream"))
    monkeypatch.setattr(FakeStream, "wait_stream", lambda *_: None)
    found = train(*adapt(GraphBackend, "child_sum", hoisting="stream"))
    assert not all(np.array_equal(found[key], expected[key]) for key in expected)


def test_a_stream_that_is_not_joined_is_noticed(adapt: Any, monkeypatch: Patch) -> None:
    monkeypatch.setattr(FakeStream, "wait_event", lambda *_: None)
    monkeypatch.setattr(FakeStream, "wait_stream", lambda own, _: setattr(own, "waits", set()))
    with pytest.raises(AssertionError, match="not joined"):
        train(*adapt(GraphBackend, "child_sum", hoisting="stream"))


def test_captures_are_compilations_and_precede_the_passes(adapt: Any, monkeypatch: Patch) -> None:
    """Every size of a mini-batch is captured in advance."""
    monkeypatch.setattr(launching, "select_bucket", lambda n_phases: n_phases)
    adapter, parts = adapt(GraphBackend, "lattice_lstm", device="cuda")
    for part in sorted(parts, key=len, reverse=True):  # so that no array grows later
        adapter.compile_for(part)
    n_captures = adapter.engine.backend.n_captures
    assert adapter.n_compilations() == n_captures + 4  # kernels: forward, two backward, update
    assert n_captures > 2
    train(adapter, parts)
    assert adapter.engine.backend.n_captures == n_captures


class Stale(GraphLauncher):
    """Launcher that replays a graph although its memory has moved."""

    def start(self, name: str, work: Launches) -> None:
        key = name, tuple(launching.select_bucket(n) for _, n in work)
        if key in self._graphs:
            self._graphs[key][1].replay()
        else:
            super().start(name, work)

    def forget(self) -> None:
        """Keep all graphs."""


def test_wrong_graphs_are_noticed(adapt: Any, monkeypatch: Patch) -> None:
    expected = train(*adapt(WalkedBackend, "tree_lstm"))

    def is_right() -> bool:
        found = train(*adapt(GraphBackend, "tree_lstm"))
        return all(np.array_equal(found[key], expected[key]) for key in expected)

    assert is_right()
    monkeypatch.setattr(GraphBackend, "launcher_type", Stale)
    assert not is_right()
    monkeypatch.setattr(GraphBackend, "launcher_type", GraphLauncher)
    for select in (lambda n: n - 1, lambda n: 4):  # graphs of too few phases
        monkeypatch.setattr(launching, "select_bucket", select)
        assert not is_right()


# --- uploads: the host waits for a pinned buffer, and for nothing else ---

N_UPLOADS = 7


class SlowCopies(Staging):
    """Uploads whose copies are done, in order, when the host waits for one of them."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"), self.finish)
        self.waiting: list[Callable[[], object]] = []
        self.copied: list[Words] = []
        self.n_waits = 0

    def _start_copy(self, source: torch.Tensor, out: torch.Tensor) -> Any:
        self.waiting.append(partial(self._copy, source, out))
        end = len(self.copied) + len(self.waiting)
        return SimpleNamespace(synchronize=partial(self._reach, end))

    def _copy(self, source: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(source)
        self.copied.append(out.numpy().copy())

    def _reach(self, number: int) -> None:
        self.n_waits += 1
        while len(self.copied) < number:
            self.waiting.pop(0)()

    def finish(self) -> None:
        for copy in self.waiting:
            copy()
        self.waiting.clear()


class Careless(SlowCopies):
    """The same without a wait for a pinned buffer."""

    def _reach(self, number: int) -> None:
        self.n_waits += 1


def upload_all(staging: SlowCopies, sizes: list[int]) -> bool:
    """Return whether the device got every upload as it was."""
    uploads = [np.full(size, k, dtype=np.int32) for k, size in enumerate(sizes)]
    for words in uploads:
        staging.upload([words])
    staging.finish()
    return all(
        np.array_equal(found[1:], words)
        for found, words in zip(staging.copied, uploads, strict=True)
    )


@pytest.mark.parametrize(
    "sizes", [[3] * N_UPLOADS, [3, 9, 2, 40, 40, 7, 100]], ids=["same", "grow"]
)
def test_every_upload_reaches_the_device(sizes: list[int]) -> None:
    staging = SlowCopies()
    assert upload_all(staging, sizes)
    assert staging.n_uploads == N_UPLOADS
    assert staging.n_waits == N_UPLOADS - N_PINNED


def test_the_wait_for_a_pinned_buffer_is_needed() -> None:
    assert not upload_all(Careless(), [3] * N_UPLOADS)


def test_launches_are_forgotten_before_the_buffer_moves() -> None:
    left: list[int] = []
    staging = Staging(torch.device("cpu"), lambda: left.append(staging.words.data_ptr()))
    moved = []
    for size in (3, 2, 400, 400, 9, 4000):
        before = staging.words.data_ptr()
        staging.upload([np.zeros(size, dtype=np.int32)])
        moved += [before] * (staging.words.data_ptr() != before)
    assert left == moved
    assert len(moved) == 3


def test_an_event_follows_each_copy_on_a_gpu(monkeypatch: Patch) -> None:
    staging, log = Staging(torch.device("cpu"), lambda: None), list[str]()
    event = SimpleNamespace(record=lambda: log.append("event"))
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(staging, "_device", torch.device("cuda"))
    buffer: Any = SimpleNamespace(copy_=lambda _, non_blocking: log.append(f"copy {non_blocking}"))
    assert staging._start_copy(torch.zeros(1), buffer) is event
    assert log == ["copy True", "event"]


def test_graphs_are_few_and_have_room() -> None:
    rooms = [launching.select_bucket(n) for n in range(1, 9000)]
    assert all(room >= n for n, room in enumerate(rooms, start=1))
    assert len(set(rooms)) == len(launching.BUCKETS) + 4  # multiples of the last one
