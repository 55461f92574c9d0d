"""Work is shared with forks: each item once, and whatever goes wrong there is nobody's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine import forks
from harness.machine.forks import in_a_fork, in_forks, shares
from harness.values.places import ROOT
from tests.support.in_time import dies_after

Work = Callable[[int], None]


@given(st.lists(st.integers(0, 50)), st.integers(1, 6))
def test_shares_hold_every_item_once_and_none_is_much_larger(costs: list[int], n: int) -> None:
    found = shares(costs, float, n)
    assert sorted(item for share in found for item in share) == sorted(costs)
    assert len(found) == max(1, min(n, len(costs)))
    mean = sum(costs) / n
    assert all(sum(share) <= mean + max(costs) for share in found if share)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Leaves the number of the process that did it."""
    return lambda item: (tmp_path / f"{item}").write_text(str(os.getpid())) and None


@pytest.fixture
def _three_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "usable_cpus", lambda: (0, 1, 2))


@pytest.mark.usefixtures("_three_cpus")
def test_each_process_does_its_share(work: Work, tmp_path: Path) -> None:
    in_forks(work, [1, 2, 3, 4], float)
    who = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
    assert who.keys() == {"1", "2", "3", "4"}
    assert who["4"] == os.getpid(), "the most costly is done where it is needed"
    assert len({*who.values()}) == 3
    assert who["1"] == who["2"] != os.getpid()


@pytest.mark.usefixtures("_three_cpus")
def test_one_of_two_is_done_in_a_fork(work: Work, tmp_path: Path) -> None:
    in_a_fork(partial(work, 1), partial(work, 2))
    who = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
    assert who["2"] == os.getpid() != who["1"]


@pytest.mark.usefixtures("_three_cpus")
def test_a_fork_that_is_at_work_already_takes_a_cpu(work: Work, tmp_path: Path) -> None:

    def shares_again(outer: int) -> None:
        in_forks(work, [10 * outer + k for k in range(4)], float)

    in_a_fork(partial(shares_again, 1), partial(shares_again, 2))
    who = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
    assert who.keys() == {"10", "11", "12", "13", "20", "21", "22", "23"}
    assert len({who[name] for name in who if name[0] == "2"}) == 2


@pytest.mark.usefixtures("_three_cpus")
def test_an_error_in_a_fork_leaves_its_items_undone(work: Work, tmp_path: Path) -> None:
    def fails_elsewhere(item: int) -> None:
        if os.getpid() != own:
            raise MemoryError(f"no room for {item}")
        work(item)

    own = os.getpid()
    in_forks(fails_elsewhere, [1, 2, 3], float)
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


@pytest.mark.usefixtures("_three_cpus")
def test_an_own_error_comes_out_when_all_forks_have_ended(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_here(item: int) -> None:
        if os.getpid() == own:
            raise ValueError("mine")
        work(item)

    def seen(*arguments: Any) -> int:
        started.append(begin(*arguments))
        return started[-1]

    own, begin, started = os.getpid(), forks._fork, list[int]()
    monkeypatch.setattr(forks, "_fork", seen)
    with pytest.raises(ValueError, match="mine"):
        in_forks(fails_here, [1, 2, 3], float)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}
    assert len(started) == 2
    for fork in started:
        with pytest.raises(ChildProcessError):
            os.waitpid(fork, os.WNOHANG)


@pytest.mark.usefixtures("_three_cpus")
def test_a_fork_that_never_ends_is_ended(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs_elsewhere(item: int) -> None:
        while os.getpid() != own:
            signal.pause()
        work(item)

    own = os.getpid()
    monkeypatch.setattr(forks, "MOST_S", 1)
    with dies_after(60):
        in_forks(hangs_elsewhere, [1, 2], float)
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


ORPHAN = """
import os, signal
from harness.machine import forks

own = os.getpid()
forks.usable_cpus = lambda: (0, 1)

def work(item):
    if os.getpid() == own:
        signal.pause()
    print(os.getpid(), flush=True)
    signal.pause()

forks.in_forks(work, [1, 2], float)
"""


def test_a_fork_ends_with_its_parent() -> None:
    command = [sys.executable, "-c", ORPHAN]
    with dies_after(120), subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        fork = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        assert parent.stdout.read() == b"", "nobody holds the other end any more"
        while _runs(fork):
            time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """A dead one may wait for whoever adopted it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("n_cpus", [1, 4])
def test_what_nobody_can_share_is_left(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_cpus: int
) -> None:
    monkeypatch.setattr(forks, "usable_cpus", lambda: tuple(range(n_cpus)))
    in_forks(work, [1] if n_cpus > 1 else [1, 2], float)
    assert not list(tmp_path.iterdir())
