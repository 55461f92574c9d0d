"""Directories of one process: deleted when it ends, or by the next process if it was killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine import folders as module
from dynbatch.harness.machine.caches import NAME
from dynbatch.harness.machine.folders import (
    make_locks_folder,
    make_process_folder,
    make_temporary_folder,
    make_user_folder,
)
from tests.support.refusals import expect_refusal

Patch = pytest.MonkeyPatch

PROGRAM = """
import contextlib, sys
from dynbatch.harness.machine.folders import make_process_folder, make_temporary_folder
with {} as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.readline()
"""
OF_PROCESS = PROGRAM.format('contextlib.nullcontext(make_process_folder("things"))')
IN_A_BLOCK = PROGRAM.format("make_temporary_folder()")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: Patch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_process_folder.cache_clear()
    yield tmp_path / "cache"
    make_process_folder.cache_clear()


def started(program: str = OF_PROCESS) -> tuple[subprocess.Popen[str], Path]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    folder = Path(process.stdout.readline().strip())
    assert (folder / "file").exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    return process, folder


def test_it_goes_with_the_process() -> None:
    process, folder = started()
    process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert not folder.exists()


def test_folders_of_killed_processes_are_removed_and_live_ones_kept(monkeypatch: Patch) -> None:
    (killed, left), (living, held) = started(), started()
    killed.kill()
    killed.communicate(timeout=60)
    first = make_process_folder("things")
    assert left.exists(), "a young one may not be locked yet"
    monkeypatch.setattr(module, "YOUNG_S", -1)
    make_process_folder.cache_clear()
    second = make_process_folder("things")
    assert not left.exists()
    assert (held / "file").exists()
    assert first.exists()
    assert second not in (first, held)
    living.communicate("\n", timeout=60)


def test_libraries_get_a_folder_of_the_cache_or_of_the_process(home: Path) -> None:
    assert make_user_folder("things") == home / NAME / "things"
    (home / NAME).chmod(0o777)
    own = make_user_folder("things")
    assert own == make_user_folder("things")
    assert home not in own.parents
    assert own.stat().st_mode & 0o777 == 0o700


def test_next_block_deletes_only_folders_of_killed_processes(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # so that it is read again
    (killed, left), (living, held) = started(IN_A_BLOCK), started(IN_A_BLOCK)
    assert left.parent == tmp_path
    killed.kill()
    killed.communicate(timeout=60)
    strangers = tmp_path / "bench-of-a-user"
    strangers.mkdir()
    linked = tmp_path / f"{NAME}-run-linked"
    linked.symlink_to(strangers)
    (strangers / "file").touch()
    monkeypatch.setattr(module, "YOUNG_S", -1)
    with make_temporary_folder() as folder:
        assert folder.parent == tmp_path
        assert not left.exists()
        assert (held / "file").exists()
        assert (strangers / "file").exists()
    assert not folder.exists()
    living.communicate("\n", timeout=60)
    assert not held.exists()


def test_a_block_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(FileNotFoundError), make_temporary_folder() as folder:
        (folder / "nowhere" / "file").touch()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: Patch) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(module, "MEMORY", folder)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    return folder


def test_it_is_made_in_memory_and_closed_to_others(memory: Path) -> None:
    folder = make_locks_folder()
    assert folder.parent == memory
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert make_locks_folder() == folder


def test_one_that_others_may_write_to_is_not_taken(memory: Path, tmp_path: Path) -> None:
    make_locks_folder().chmod(0o777)
    with expect_refusal("is writable by other users", kind=BenchError):
        make_locks_folder()
    (tmp_path / "temporary").mkdir()
    assert make_locks_folder().parent == tmp_path / "temporary"


def test_cleanup_preserves_machine_lock_folder(
    memory: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Both may be in one directory, and no process locks the directory of the locks."""
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(memory))
    (make_locks_folder() / "lock").touch()
    os.utime(make_locks_folder(), (0, 0))
    with make_temporary_folder() as folder:
        assert folder.parent == memory
    assert (make_locks_folder() / "lock").exists()
