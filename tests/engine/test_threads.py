"""The engine's threads: their parts of the work, their barriers, and reproducible results."""

from __future__ import annotations

import gc
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import add_to_word, get_address, put_word, read_word
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.cpu_kernels import team as teams
from dynbatch.harness.engine.cpu_kernels.blas import prepare_libraries
from dynbatch.harness.engine.cpu_kernels.context import (
    N_THREADS,
    TALLY,
    THREAD,
    mark_distinct_runs,
    share,
)
from dynbatch.harness.engine.cpu_kernels.team import (
    HAS_FUTEX,
    JOB,
    PARKED,
    PASSED,
    Call,
    Team,
    wait_at_barrier,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from tests.support.engine_models import example
from tests.support.engine_runs import disagreements, prepared, run

Patch = pytest.MonkeyPatch
needs_futex = pytest.mark.skipif(not HAS_FUTEX, reason="there is nothing to park threads with")
MISSED, MEETINGS = 0, 1  # counters of _visit


@compiled
def _visit(context: int, seen: int, batches: int, n: int) -> None:
    """Check on every thread, after each barrier, the values that all wrote before it."""
    thread, n_threads = read_word(context, THREAD), read_word(context, N_THREADS)
    tally = read_word(context, TALLY)
    for i in range(n):
        put_word(seen, 2 * thread + i % 2, i)
        wait_at_barrier(context)
        for other in range(n_threads):
            if read_word(seen, 2 * other + i % 2) != i:
                add_to_word(tally, MISSED, 1)
        wait_at_barrier(context)
        add_to_word(tally, MEETINGS, 1)


def _team(n: int) -> Team:
    return Team(n, prepare_libraries("auto", 1))


def _visits(n_threads: int, n: int) -> Call:
    seen = np.zeros((n_threads, 2), np.int64)
    callee = SimpleNamespace(function=_visit.address, argument=get_address(seen), seen=seen)
    return Call(callee, np.zeros((n, 2), np.int32))


def _own_threads() -> int:
    return sum(thread.name == teams.NAME for thread in threading.enumerate())


def _own_threads_at_rest() -> int:
    """Return the number of threads after those of deleted teams have ended."""
    gc.collect()
    found = _own_threads()
    for _ in range(40):
        time.sleep(0.005)
        if _own_threads() != found:
            return _own_threads_at_rest()
    return found


@settings(deadline=None)
@given(st.integers(0, 300), st.sampled_from([1, 8, 16]), st.integers(1, 17))
def test_shares_are_whole_units_that_cover_all_once(n: int, unit: int, n_threads: int) -> None:
    shares = [share(n, unit, thread, n_threads) for thread in range(n_threads)]
    covered = [k for first, count in shares for k in range(first, first + count)]
    assert covered == list(range(n))
    counts = [count for _, count in shares]
    assert max(counts) <= -(-n // (unit * n_threads)) * unit
    assert sum(count % unit != 0 for count in counts) <= 1


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=5), st.integers(1, 3))
def test_duplicate_indices_within_runs_are_detected(drawn: list[list[int]], n_parts: int) -> None:
    runs = [run_[: len(run_) // n_parts * n_parts] for run_ in drawn]
    bounds = np.cumsum([0, *(len(run_) // n_parts for run_ in runs)]).astype(np.int64)
    index = np.array([k for run_ in runs for k in run_], np.int64)
    expected = [len(set(run_)) == len(run_) for run_ in [*runs, index.tolist()]]
    assert mark_distinct_runs(index, bounds, n_parts).tolist() == [int(apart) for apart in expected]


@needs_futex
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_nobody_leaves_a_meeting_before_all_are_there(n_threads: int) -> None:
    team = _team(n_threads)
    for n in (300, 0, 1, 200):
        call = _visits(n_threads, n)
        before = [tally[MEETINGS] for tally in team.tallies]
        team.run([call, call])
        assert [tally[MEETINGS] for tally in team.tallies] == [had + 2 * n for had in before]
    assert [tally[MISSED] for tally in team.tallies] == [0] * n_threads
    team.run([])


@needs_futex
def test_threads_are_started_once_parked_when_idle_and_end_with_their_team() -> None:
    before = _own_threads_at_rest()
    team = _team(3)
    call = _visits(3, 10)
    for _ in range(5):
        team.run([call])
    assert _own_threads() == before + 2
    deadline = time.monotonic() + 60
    while team._words[JOB + PARKED] < 2:  # both, after they stopped polling
        assert time.monotonic() < deadline
        time.sleep(0.001)
    begin = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - begin < 0.1, "threads that spin would take 0.4 s"
    team.run([call])
    del team
    gc.collect()
    while _own_threads() > before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_missing_futex_falls_back_to_one_thread_and_is_recorded(monkeypatch: Patch) -> None:
    monkeypatch.setattr(teams, "HAS_FUTEX", False)
    backend = Backend(Switches(), "cpu", 2)
    assert backend.facts()["threads"].startswith("1 of 2: ")
    monkeypatch.undo()
    if HAS_FUTEX:
        assert Backend(Switches(), "cpu", 2).facts()["threads"] == "2"
    assert Backend(Switches(), "cpu", 1).facts()["threads"] == "1"


@needs_futex
@pytest.mark.slow
@pytest.mark.parametrize("name", ["lattice_lstm", "tree_lstm", "mv_rnn"])
def test_machine_code_of_several_threads_repeats_itself_to_the_last_bit(name: str) -> None:
    model, instances, weights = example(name)
    many = list(instances) * 9  # batches of more rows than one thread takes
    reference = run_reference(model, weights, many, "train")
    for threads in (1, 2, 3):
        adapter = prepared(model, weights, threads=threads)
        first, *others = (run(adapter, many) for _ in range(4))
        assert disagreements(first, reference) == []
        for other in others:
            assert other.loss == first.loss
            np.testing.assert_array_equal(other.outputs, first.outputs)
            for key, gradient in first.gradients.items():
                np.testing.assert_array_equal(other.gradients[key], gradient)


@needs_futex
@pytest.mark.parametrize(
    ("name", "shares_children"), [("tree_lstm", False), ("shared_children", True)]
)
def test_adding_threads_synchronize_only_for_shared_children(
    name: str, shares_children: bool
) -> None:
    """In the backward stage, a tree's batches have one barrier each, at their end.

    One more ends the job.
    """
    model, instances, weights = example(name)
    adapter = prepared(model, weights, threads=2)
    run(adapter, instances)
    backend, arranged = adapter.engine.backend, adapter.engine.arrangement
    (batches,) = (found for stage, found in arranged.backward if stage == "backward")
    before = backend._team._words[PASSED]
    backend.run_together([("backward", batches)])
    n_meetings, n_batches = backend._team._words[PASSED] - before - 1, len(batches)
    assert n_batches > 2
    assert (n_meetings > n_batches) == shares_children
    assert n_meetings >= n_batches
