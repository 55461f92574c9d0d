"""An error in one thread's compiled code: the others stop, and the caller gets it."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.engine.cpu_kernels import addresses, meeting
from harness.engine.cpu_kernels import team as teams
from harness.engine.cpu_kernels.blas import multiplying
from harness.engine.cpu_kernels.foreign import call
from harness.engine.cpu_kernels.meeting import HAS_FUTEX
from harness.engine.cpu_kernels.team import Call, Team
from harness.errors import UnsupportedTrial
from harness.machine.native import Native, native
from harness.measuring.launch import run_worker
from harness.trials.spec import Limits, TrialSpec
from tests.support.in_time import dies_after

needs_futex = pytest.mark.skipif(not HAS_FUTEX, reason="there is nothing to park threads with")
MakeSpec = Callable[..., TrialSpec]
NEVER = -1


@native("void(int64, int64, int64, int64)", error_model="numpy")
def _fail(context: int, places: int, batches: int, n: int) -> None:  # pragma: no cover - compiled
    """Meet n times; at the time that each thread's number is planned for, it raises.

    Behind the planned numbers stand those at which threads did.
    """
    thread, n_threads = addresses.thread_of(context)
    planned = addresses.int64_vector(places, 0)
    for i in range(n):
        if planned[thread] == i:
            planned[n_threads + thread] = i
            if i % 2:
                raise MemoryError("no room left")
            raise IndexError("row 7 of 5")
        if not meeting.meet(context):
            return
        addresses.tally_of(context)[0] += 1


class _Callee:
    """A call of a function with an array of numbers."""

    def __init__(self, function: Native, numbers: list[int]) -> None:
        self.function = function
        self.arrays = [np.array(numbers, np.int64)]
        self._places = np.array([addresses.address_of(self.arrays[0]), len(numbers)], np.int64)
        self.places_address = addresses.address_of(self._places)


def _call(planned: list[int], n: int = 9) -> Call:
    """planned: for each thread the meeting at which it raises, -1 for none."""
    numbers = [*planned, *(NEVER for _ in planned)]
    return Call(_Callee(_fail, numbers), np.zeros((n, 2), np.int32))


def _engine_threads() -> int:
    return sum(thread.name == teams.NAME for thread in threading.enumerate())


def _team(n: int) -> Team:
    chosen = multiplying("auto", 1)
    return Team(n, chosen.for_thread, chosen.enter)


@pytest.fixture(autouse=True)
def _nobody_waits_for_ever() -> Iterator[None]:
    with dies_after(120):
        before = _engine_threads()
        yield
        gc.collect()
        _until(lambda: _engine_threads() <= before)


@needs_futex
@pytest.mark.parametrize(
    "planned",
    [[4], [4, -1], [-1, 4], [4, 4], [0, -1], [-1, 0], [6, 4], [-1, 4, -1], [4, -1, 4], [8, 8, 8]],
)
def test_an_error_of_any_thread_comes_out_once_all_have_stopped(planned: list[int]) -> None:
    team = _team(len(planned))
    fine = _call([-1] * len(planned))
    first = min(i for i in planned if i >= 0)
    for _ in range(20):
        for tally in team.tallies:
            tally[:] = 0
        failing = _call(planned)
        with pytest.raises(IndexError, match="row 7 of 5"):
            team.run([fine, failing, fine])
        at = failing.callee.arrays[0][len(planned) :].tolist()
        who = [thread for thread, meeting_ in enumerate(at) if meeting_ != NEVER]
        assert who
        assert all(at[thread] == planned[thread] == first for thread in who)
        counts = [int(tally[0]) for tally in team.tallies]
        # Who is still on the way out of the last meeting may hear of the error there.
        assert set(counts) <= {9 + first, 8 + first}, "nobody goes on to the next meeting"
        assert all(counts[thread] == 9 + first for thread in who)
        team.run([fine, fine])  # and the team is as good as before


@needs_futex
@pytest.mark.parametrize("planned", [[3], [3, -1], [-1, 3]])
def test_the_kind_of_an_error_stays(planned: list[int]) -> None:
    with pytest.raises(MemoryError, match="no room left"):
        _team(len(planned)).run([_call(planned)])


@native("void(int64, int64, int64, int64)", error_model="numpy")
def _interrupt(context: int, places: int, batches: int, n: int) -> None:  # pragma: no cover
    """Meet n times; at the second one the last thread sends the process a signal."""
    thread, n_threads = addresses.thread_of(context)
    kill = addresses.int64_vector(places, 0)
    for i in range(n):
        if i == 1 and thread == n_threads - 1:
            call(kill[0], (np.int32(kill[1]), np.int32(kill[2])))
        if not meeting.meet(context):
            return
        addresses.tally_of(context)[0] += 1


@needs_futex
@pytest.mark.parametrize("n_threads", [1, 2])
def test_ctrl_c_in_the_middle_of_a_job_comes_out_when_all_are_done(n_threads: int) -> None:
    team, fine = _team(n_threads), _call([-1] * n_threads)
    kill = ctypes.cast(ctypes.CDLL(None).kill, ctypes.c_void_p).value
    found = _Callee(_interrupt, [kill or 0, os.getpid(), signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        team.run([Call(found, np.zeros((9, 2), np.int32)), fine])
    assert [tally[0] for tally in team.tallies] == [18] * n_threads
    team.run([fine])


@needs_futex
def test_a_fork_is_told_that_it_has_no_threads() -> None:
    team = _team(2)
    child = os.fork()
    if child == 0:
        try:
            team.run([_call([-1, -1])])
        except RuntimeError as error:
            os._exit(7 if str(error).startswith("a fork has none") else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def _dies() -> None:
    raise OSError("no thread of that library")


@needs_futex
def test_a_thread_that_cannot_begin_is_told_and_leaves_none_behind() -> None:
    before = _engine_threads()
    with pytest.raises(OSError, match="no thread of that library"):
        Team(3, multiplying("auto", 1).for_thread, _dies)
    _until(lambda: _engine_threads() == before)


@needs_futex
def test_where_no_more_threads_can_be_started_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, start, n_started = _engine_threads(), threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        if n_started:
            raise RuntimeError("can't start new thread")
        n_started.append(thread)
        start(thread)

    monkeypatch.setattr(teams.threading.Thread, "start", refuse)
    with pytest.raises(UnsupportedTrial, match=r"only 2 of threads=3 could be started.*ulimit -u"):
        _team(3)
    _until(lambda: _engine_threads() == before)


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never became so")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "thread", "threads", "status", "reason"),
    [
        ("bounds", 1, 2, "crash", "IndexError: row 7 of 5"),
        ("memory", 0, 2, "oom", "MemoryError: "),
        ("shape", -1, 2, "crash", "ValueError: "),
        ("bounds", -1, 1, "crash", "IndexError: row 7 of 5"),
    ],
)
def test_a_trial_whose_generated_code_fails_ends_with_one_line(
    make_spec: MakeSpec,
    tmp_path: Path,
    kind: str,
    thread: int,
    threads: int,
    status: str,
    reason: str,
) -> None:
    spec = make_spec(
        adapter="tests.support.failing_threads",
        system_options={"kind": kind, "thread": thread},
        threads=threads,
        limits=Limits(time_s=120.0),
    )
    record = run_worker(spec, tmp_path / "raw" / "r0.json", tmp_path / "r0.log")
    assert record.status == status
    assert str(record.reason).startswith(reason)
    assert "\n" not in str(record.reason)
