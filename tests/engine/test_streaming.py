"""Preparing and uploading the next mini-batch during computation does not change results.

NumPy runs programs on two streams, in the worst order that marks allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import dynbatch.harness.engine.engine
from dynbatch.harness.contracts.system import PHASES
from dynbatch.harness.engine.backend import choose_backend
from dynbatch.harness.engine.backends.cuda.launching import Mark, Stream, Streams
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import example
from tests.support.engine_runs import NoClock, loaded, prepared
from tests.support.walked_backend import WalkedBackend
from tests.support.worst_streams import ORDERS, Choose, WorstStreams, first

N_PASSES = 3


class Streamed(WalkedBackend):
    """Backend that runs programs on the streams of a test."""

    streams: Streams

    def _make_streams(self) -> Streams:
        return type(self).streams


def adapter_on(
    monkeypatch: pytest.MonkeyPatch, streams: Streams, name: str, *, streaming: bool = True
) -> tuple[Adapter, list[Sequence[Any]]]:
    """Return an adapter, and mini-batches of several sizes."""
    Streamed.streams = streams
    monkeypatch.setattr(dynbatch.harness.engine.engine, "choose_backend", lambda *_: Streamed)
    model, instances, weights = example(name)
    parts = [instances[:1], instances * 3, instances[1:], instances * 2, instances]
    return prepared(model, weights, Switches(streaming=streaming)), parts


def losses_of(adapter: Adapter, mini_batches: list[Sequence[Any]]) -> list[float]:
    """Return the losses of training passes, each read when the next mini-batch is prepared."""
    found = []
    for _ in range(N_PASSES):
        for _ in loaded(adapter, mini_batches):
            adapter.run(NoClock())
            found.append(adapter.last_loss())
    return found


def trained(adapter: Adapter, mini_batches: list[Sequence[Any]]) -> dict[str, Any]:
    """Return the weights after passes without any waiting."""
    for _ in range(N_PASSES):
        for _ in loaded(adapter, mini_batches):
            adapter.run(NoClock())
    return dict(adapter.parameters())


@cache
def expected(name: str) -> dict[str, Any]:
    """Return the weights without streaming, in the order of the program."""
    streams = WorstStreams(first(Stream.COMPUTE), eager=Stream.COMPUTE)
    with pytest.MonkeyPatch.context() as patch:
        return trained(*adapter_on(patch, streams, name, streaming=False))


def is_right(monkeypatch: pytest.MonkeyPatch, name: str, streams: Streams) -> bool:
    wanted = expected(name)
    try:
        found = trained(*adapter_on(monkeypatch, streams, name))
    except (AssertionError, IndexError, ValueError):  # invalid words
        return False
    return all(np.array_equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("eager", [None, Stream.COPY, Stream.COMPUTE])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["tree_lstm", "lattice_lstm"])
def test_any_order_that_marks_allow_gives_the_same_weights(
    monkeypatch: pytest.MonkeyPatch, name: str, order: str, eager: Stream | None
) -> None:
    assert is_right(monkeypatch, name, WorstStreams(ORDERS[order], eager))


class Careless(WorstStreams):
    """Streams that skip one kind of wait."""

    def __init__(self, choose: Choose, eager: Stream | None, left_out: str) -> None:
        super().__init__(choose, eager)
        self.left_out = left_out

    def wait(self, stream: Stream, mark: Mark) -> None:
        if stream != self.left_out:
            super().wait(stream, mark)

    def reach(self, mark: Mark) -> None:
        if self.left_out != "host":
            super().reach(mark)


@pytest.mark.parametrize("left_out", [Stream.COMPUTE, Stream.COPY, "host"])
def test_every_wait_is_needed(monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    """Without a wait, words are missing, or they or their source are overwritten while in use."""
    runs = [(choose, eager) for choose in ORDERS.values() for eager in (None, *Stream)]
    assert not all(
        is_right(monkeypatch, "tree_lstm", Careless(choose, eager, left_out))
        for choose, eager in runs
    )


def test_losses_are_those_of_their_mini_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loss is read after the next mini-batch was uploaded."""
    plain = losses_of(*adapter_on(monkeypatch, WorstStreams(ORDERS["drawn 0"]), "tree_lstm"))
    streams = WorstStreams(ORDERS["drawn 1"])
    off = losses_of(*adapter_on(monkeypatch, streams, "tree_lstm", streaming=False))
    assert plain == off


def test_nothing_waits_between_two_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only wait is that for a pinned buffer, whose copy ended long before."""
    streams = WorstStreams(ORDERS["drawn 0"])
    adapter, parts = adapter_on(monkeypatch, streams, "tree_lstm")
    trained(adapter, parts)
    before = streams.n_waits
    for _ in loaded(adapter, parts):
        adapter.run(NoClock())
    assert streams.n_waits - before == len(parts)


class CountingClock:
    """Clock that records marks in order."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    def mark(self, phase: str) -> None:
        assert phase in PHASES
        self.marks.append(phase)

    def divide(self, shares: Mapping[str, float]) -> None:
        raise AssertionError("nothing runs without marks here")


def test_every_pass_prepares_all_of_its_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass prepares its first mini-batch in its own run, and none after the last.

    Preparation in advance counts for its phases, in the run that does it.
    """
    adapter, parts = adapter_on(monkeypatch, WorstStreams(ORDERS["drawn 0"]), "tree_lstm")
    for _ in range(2):
        marks = []
        for _ in loaded(adapter, parts):
            clock = CountingClock()
            adapter.run(clock)
            marks.append(clock.marks)
        assert [one.count("construct") for one in marks] == [2, 1, 1, 1, 0]
        assert all(one.count("update") == 1 for one in marks)
        assert marks[1].index("update") < marks[1].index("construct")


def test_another_mini_batch_than_the_one_announced_is_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = []
    for announces in (True, False):
        streams = WorstStreams(ORDERS["drawn 0"])
        adapter, parts = adapter_on(monkeypatch, streams, "tree_lstm")
        adapter.load(parts[0])
        if announces:
            adapter.prefetch(parts[1])
        adapter.run(NoClock())
        adapter.load(parts[2])
        adapter.run(NoClock(), update=False)
        losses.append(adapter.last_loss())
    assert losses[0] == losses[1]


@pytest.mark.parametrize("backend", ["compiled", "stepwise"])
def test_streaming_is_rejected_on_unsupported_backends(backend: str) -> None:
    with pytest.raises(UnsupportedTrial, match=r"streaming=true needs backend=cuda"):
        choose_backend(Switches(backend=backend, streaming=True), "cpu")
