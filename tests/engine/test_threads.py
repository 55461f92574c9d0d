"""Threads of the engine's own: who takes what, how they wait, and that results stay."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engine.backends.compiled.backend import Backend
from harness.engine.backends.compiled.places import MEET
from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels import addresses, meeting
from harness.engine.cpu_kernels import team as teams
from harness.engine.cpu_kernels.blas import multiplying
from harness.engine.cpu_kernels.meeting import HAS_FUTEX, SPINS
from harness.engine.cpu_kernels.shares import all_apart, share
from harness.engine.cpu_kernels.team import Call, Team
from harness.engine.lowering.lower import lower
from harness.engine.switches import Switches
from harness.machine.native import native
from harness.oracle import run_reference
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import ONE_BY_ONE, disagreements, interpreted_kernels, prepared, run

needs_futex = pytest.mark.skipif(not HAS_FUTEX, reason="there is nothing to park threads with")


@native("void(int64, int64, int64, int64)", error_model="numpy")
def _visit(context: int, places: int, batches: int, n: int) -> None:  # pragma: no cover - compiled
    """Every thread adds up, meeting after meeting, what all wrote before the last one."""
    thread, n_threads = addresses.thread_of(context)
    seen = addresses.float_matrix(places, 0, 2)
    for i in range(n):
        seen[thread, i % 2] = i
        if not meeting.meet(context):
            return
        for other in range(n_threads):
            if seen[other, i % 2] != i:
                addresses.tally_of(context)[0] += 1
        if not meeting.meet(context):
            return
        addresses.tally_of(context)[1] += 1


def _team(n: int) -> Team:
    chosen = multiplying("auto", 1)
    return Team(n, chosen.for_thread, chosen.enter)


class Visits:
    """A call of _visit on an array."""

    def __init__(self, n_threads: int) -> None:
        self.function = _visit
        self.arrays = [np.zeros((n_threads, 2), np.float32)]
        self._places = np.array([addresses.address_of(self.arrays[0]), n_threads], np.int64)
        self.places_address = addresses.address_of(self._places)


def _visits(n_threads: int, n: int) -> Call:
    return Call(Visits(n_threads), np.zeros((n, 2), np.int32))


def _own_threads() -> int:
    return sum(thread.name == teams.NAME for thread in threading.enumerate())


def _own_threads_at_rest() -> int:
    """When those of teams that are gone have ended, too."""
    gc.collect()
    found = _own_threads()
    for _ in range(40):
        time.sleep(0.005)
        if (now := _own_threads()) != found:
            return _own_threads_at_rest()
        found = now
    return found


@settings(deadline=None)
@given(st.integers(0, 300), st.sampled_from([1, 8, 16]), st.integers(1, 17))
def test_shares_are_whole_units_that_cover_all_once(n: int, unit: int, n_threads: int) -> None:
    shares = [share.py_func(n, unit, thread, n_threads) for thread in range(n_threads)]
    covered = [k for first, count in shares for k in range(first, first + count)]
    assert covered == list(range(n))
    counts = [count for _, count in shares]
    assert max(counts) <= -(-n // (unit * n_threads)) * unit
    assert sum(count % unit != 0 for count in counts) <= 1


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=5), st.integers(1, 3))
def test_what_batches_have_in_common_is_found(drawn: list[list[int]], n_parts: int) -> None:
    runs = [run_[: len(run_) // n_parts * n_parts] for run_ in drawn]
    bounds = np.cumsum([0, *(len(run_) // n_parts for run_ in runs)]).astype(np.int32)
    index = np.array([k for run_ in runs for k in run_], np.int64)
    expected = [len(set(run_)) == len(run_) for run_ in [*runs, index.tolist()]]
    assert all_apart(index, bounds, n_parts).tolist() == [int(apart) for apart in expected]


@needs_futex
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_nobody_leaves_a_meeting_before_all_are_there(n_threads: int) -> None:
    team = _team(n_threads)
    for n in (300, 0, 1, 200):
        call = _visits(n_threads, n)
        before = [tally[1] for tally in team.tallies]
        team.run([call, call])
        assert [tally[1] for tally in team.tallies] == [had + 2 * n for had in before]
    assert [tally[0] for tally in team.tallies] == [0] * n_threads
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
    while team.parked() < 2:  # both, after their last looks
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


def test_looking_again_is_bounded() -> None:
    assert 0 < SPINS <= 10_000


def test_where_threads_cannot_be_parked_one_runs_and_the_record_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(teams, "HAS_FUTEX", False)
    backend = Backend(Switches(), "cpu", 2)
    assert backend.facts()["threads"].startswith("1 of 2: ")
    monkeypatch.undo()
    if HAS_FUTEX:
        assert Backend(Switches(), "cpu", 2).facts()["threads"] == "2"
    assert Backend(Switches(), "cpu", 1).facts()["threads"] == "1"


@pytest.mark.parametrize(
    ("name", "threads", "switches"),
    [
        ("lattice_lstm", 2, ("all", "fusion")),  # whose batches have children in common
        ("mv_rnn", 3, tuple(ONE_BY_ONE)),
        ("child_sum", 2, tuple(ONE_BY_ONE)),
        ("tree_lstm", 3, tuple(ONE_BY_ONE)),
    ],
)
def test_rows_shared_among_threads_give_what_the_oracle_says(
    name: str, threads: int, switches: tuple[str, ...]
) -> None:
    model, instances, weights = example(name)
    oracle = run_reference(model, weights, instances, "train")
    with interpreted_kernels():
        for chosen in (ONE_BY_ONE[word] for word in switches):
            adapter = prepared(model, weights, Switches(**chosen), threads=threads)
            found = run(adapter, instances)
            assert disagreements(found, oracle) == [], chosen
            alone = run(prepared(model, weights, Switches(**chosen)), instances)
            assert found.counters == alone.counters, chosen


@needs_futex
@pytest.mark.slow
@pytest.mark.parametrize("name", ["lattice_lstm", "tree_lstm"])
def test_machine_code_of_several_threads_repeats_itself_to_the_last_bit(name: str) -> None:
    model, instances, weights = example(name)
    many = list(instances) * 9  # batches of more rows than one thread takes
    oracle = run_reference(model, weights, many, "train")
    for threads in (1, 2, 3):
        adapter = prepared(model, weights, threads=threads)
        first, *others = (run(adapter, many) for _ in range(4))
        assert disagreements(first, oracle) == []
        for other in others:
            assert other.loss == first.loss
            np.testing.assert_array_equal(other.outputs, first.outputs)
            for key, gradient in first.gradients.items():
                np.testing.assert_array_equal(other.gradients[key], gradient)


def test_who_adds_to_children_meets_the_others_only_where_children_are_shared() -> None:
    """A tree's batches go through the backward stage with one meeting each, at their end."""
    model, _ = EXAMPLES["tree_lstm"]
    adapter = prepared(model, example("tree_lstm")[2])
    plans = {
        t: lower(f, Switches(), Backend.abilities, train=True)
        for t, f in adapter.model.functions.items()
    }
    lines = write_loop(plans, "backward").body.splitlines()
    met = [k for k, line in enumerate(lines) if line.strip() == MEET]
    behind = lines[met[-1] + 1 :]  # outside the loop over batches
    assert [line.split(" +=")[0] for line in behind] == ["    tally[0]", "    tally[1]"]
    for k in met[:-1]:
        condition = lines[k - 1].strip()
        assert condition.startswith(("if n_threads > 1 and not (", "if alone:")), condition
