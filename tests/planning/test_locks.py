"""Locks of results directories: exclusive, with a named holder, released with their process."""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import stat
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine import folders
from dynbatch.harness.planning import locks
from dynbatch.harness.planning.locks import begin_run, block_runs, hold_machine, hold_results_dir
from tests.support.odd_files import fail_on_full_disk
from tests.support.refusals import expect_refusal

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def memory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: Patch) -> Path:
    """Return a temporary directory that replaces the machine's local one."""
    folder = tmp_path_factory.mktemp("memory")
    monkeypatch.setattr(folders, "MEMORY", folder)
    return folder


def hold(results: Path, holder: str, alone: bool, ready: Connection) -> None:
    with hold_results_dir(results, holder, 0.0, print, alone=alone):
        ready.send(True)
        signal.pause()


def holder_of(results: Path, holder: str, *, alone: bool = True) -> multiprocessing.Process:
    """Start a process that holds the lock of a directory."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(
        target=hold, args=(results, holder, alone, sender), daemon=True
    )
    process.start()
    assert receiver.recv()
    return process


def check_error(lock: AbstractContextManager[str], words: str) -> None:
    with pytest.raises(BenchError, match=words), lock:
        pass


def check_refused(results: Path, holder: str, *, alone: bool = True) -> None:
    """Check that the lock of a directory is refused at once, and its holder named."""
    check_error(hold_results_dir(results, "second", 0.0, print, alone=alone), holder)


def test_held_lock_is_refused_with_its_owner(tmp_path: Path) -> None:
    holder = holder_of(tmp_path / "results", "bench -m system=vertex")
    printed: list[str] = []
    owner = f"bench -m system=vertex (process {holder.pid}, since "
    with (
        expect_refusal(owner, "choose another results_dir", kind=BenchError),
        hold_results_dir(tmp_path / "elsewhere" / ".." / "results", "bench", 0.0, printed.append),
    ):
        pass
    assert not printed, "whoever does not wait says so once"
    with hold_results_dir(tmp_path / "other", "bench", 0.0, printed.append):
        pass
    holder.kill()
    holder.join()


def test_a_directory_whose_name_is_not_utf_8_has_a_lock(tmp_path: Path) -> None:
    """The working directory may have such a name."""
    with hold_results_dir(tmp_path / "m\udcfc" / "results", "bench", 0.0, print) as name:
        assert name


def test_waiting_ends_when_the_holder_ends(tmp_path: Path, monkeypatch: Patch) -> None:
    holder = holder_of(tmp_path, "bench x")
    printed: list[str] = []

    def end_holder(_: float) -> None:
        assert len(printed) == 1
        holder.kill()  # as with kill -9: the kernel releases the lock
        holder.join()

    monkeypatch.setattr(locks.time, "sleep", end_holder)
    with hold_results_dir(tmp_path, "bench y", math.inf, printed.append):
        assert not holder.is_alive()
    assert printed == [f"{printed[0].partition(' is ')[0]} is measuring into {tmp_path}; waiting"]
    assert "bench x" in printed[0]


def test_a_wait_has_an_end(tmp_path: Path, monkeypatch: Patch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(locks.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(locks.time, "sleep", lambda _: None)
    printed: list[str] = []
    with hold_results_dir(tmp_path, "first", 0.0, printed.append):
        check_error(hold_results_dir(tmp_path, "second", 5.0, printed.append), "first")
    assert [line.rpartition("; ")[2] for line in printed] == ["waiting for at most 5 s"]


def test_waiter_for_a_deleted_lock_takes_the_new_one(tmp_path: Path, monkeypatch: Patch) -> None:
    """The holder deletes the file after it is opened and before it is locked."""
    is_locked_now, took = locks._try_flock, []

    def lock(file: object) -> bool:
        if not took:
            took.append(Path(str(file.name)))  # type: ignore[attr-defined]
            took[0].unlink()
        return is_locked_now(file)  # type: ignore[arg-type]

    monkeypatch.setattr(locks, "_try_flock", lock)
    with hold_results_dir(tmp_path, "bench", 0.0, print):
        assert took[0].exists()
        check_refused(tmp_path, "bench")


def test_a_turn_is_waited_for_whatever_the_cache(tmp_path: Path, monkeypatch: Patch) -> None:
    """Each run may have its own cache, or the cache may be cleared during a run."""
    results, cache = tmp_path / "results", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with hold_results_dir(results, "first", 0.0, print):
        if cache.exists():
            shutil.rmtree(cache)
        for home in (cache, tmp_path / "another"):
            monkeypatch.setenv("XDG_CACHE_HOME", str(home))
            check_refused(results, "first")


@pytest.mark.parametrize("has_cache", [True, False])
def test_locks_have_fallback_folders(tmp_path: Path, monkeypatch: Patch, has_cache: bool) -> None:
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(folders, "MEMORY", tmp_path / "missing")
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path / "missing, too"))
    if not has_cache:
        (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    results = tmp_path / "results"
    with hold_results_dir(results, "first", 0.0, print):
        (lock,) = tmp_path.rglob("*.turn")
        assert lock.is_relative_to(tmp_path / "cache" if has_cache else results)
        check_refused(results, "first")


def test_a_turn_holds_though_its_owner_cannot_be_named(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail_on_full_disk)
        held = hold_results_dir(tmp_path, "first", 0.0, print)
        held.__enter__()
    check_refused(tmp_path, "another run")
    held.__exit__(None, None, None)


def test_a_run_of_the_pipeline_and_a_turn_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The jobs of the pipeline take the lock themselves."""
    with (
        begin_run(tmp_path),
        hold_results_dir(tmp_path, "a job", 0.0, print),
        block_runs(tmp_path) as is_alone,
    ):
        assert not is_alone
    with block_runs(tmp_path) as is_alone:
        assert is_alone
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_untimed_work_shares_a_turn_but_never_with_timed_work(tmp_path: Path) -> None:
    holder = holder_of(tmp_path, "a trial")
    check_refused(tmp_path, "a trial", alone=False)
    holder.kill()
    holder.join()
    sharers = [holder_of(tmp_path, f"count {k}", alone=False) for k in range(2)]
    with hold_results_dir(tmp_path, "count 2", 0.0, print, alone=False):
        pass
    for left in sharers:
        check_refused(tmp_path, "count")
        left.kill()
        left.join()
    with hold_results_dir(tmp_path, "a trial", 0.0, print):
        pass


def test_only_the_first_holder_of_a_shared_turn_runs_cleanup(tmp_path: Path) -> None:
    """Other processes would otherwise terminate each other."""
    first: list[str] = []
    with hold_results_dir(tmp_path, "a", 0.0, print, alone=False, first=first.append) as name:
        assert first == [name]
        with hold_results_dir(tmp_path, "b", 0.0, print, alone=False, first=first.append):
            assert first == [name]
    with hold_results_dir(tmp_path, "c", 0.0, print, first=first.append):
        assert first == [name, name]


def test_the_last_to_hold_a_turn_removes_its_file(tmp_path: Path, memory: Path) -> None:
    with hold_results_dir(tmp_path / "results", "bench", 0.0, print) as name:
        assert [path.name for path in memory.rglob("*.turn")] == [name]
    assert not list(memory.rglob("*.turn"))
    with hold_results_dir(tmp_path, "a", 0.0, print, alone=False):
        with hold_results_dir(tmp_path, "b", 0.0, print, alone=False):
            pass
        assert list(memory.rglob("*.turn"))
        check_refused(tmp_path, "is still measuring")
    assert not list(memory.rglob("*.turn"))


def test_a_machine_measures_one_trial_whatever_the_folder(memory: Path) -> None:
    """The lock is in a local directory of the machine, because nodes share the user's cache."""
    with hold_machine("a job", 0.0, print):
        (lock,) = memory.rglob("*.turn")
        assert stat.S_IMODE(lock.parent.stat().st_mode) == 0o700
        for alone in (True, False):
            another = hold_machine("another", 0.0, print, alone=alone)
            check_error(another, "a job .* is still measuring on ")
    with (
        hold_machine("a count", 0.0, print, alone=False),
        hold_machine("a count more", 0.0, print, alone=False),
    ):
        pass


def test_machine_without_a_local_directory_is_reported(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(folders, "MEMORY", tmp_path / "missing")
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path / "missing, too"))
    with pytest.raises(BenchError, match="no writable local directory for the machine lock"):
        hold_machine("a job", 0.0, print)
