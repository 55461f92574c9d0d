"""Only regular files are read and replaced; failures leave no partial files.

Directories of one process are deleted when it ends, or by the next process if it was killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine import folders as module
from dynbatch.harness.machine.caches import NAME
from dynbatch.harness.machine.files import (
    drop_leftovers,
    find_irregular_kind,
    read_regular,
    replace_regular,
)
from dynbatch.harness.machine.folders import (
    make_locks_folder,
    make_process_folder,
    make_temporary_folder,
    make_user_folder,
)
from tests.support.odd_files import SPECIAL, everything_in, fail_on_full_disk, state
from tests.support.processes import in_time
from tests.support.refusals import expect_refusal, raising

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("name", SPECIAL)
def test_irregular_files_are_neither_read_nor_replaced(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    make, words = SPECIAL[name]
    make(path)
    before = state(path), everything_in(tmp_path)
    with in_time(20), pytest.raises(OSError, match=words) as caught:
        read_regular(path)
    assert caught.value.strerror
    with pytest.raises(OSError, match=words):
        replace_regular(path, b"new")
    assert (state(path), everything_in(tmp_path)) == before
    assert f"is {find_irregular_kind(path)}" == words


def test_a_fifo_in_place_of_a_file_is_not_waited_for(tmp_path: Path, monkeypatch: Patch) -> None:
    os.mkfifo(tmp_path / "x")
    (tmp_path / "file").touch()
    status = (tmp_path / "file").stat()
    monkeypatch.setattr(Path, "stat", lambda _: status)  # the state a moment earlier
    with in_time(20), pytest.raises(OSError, match="is a FIFO"):
        read_regular(tmp_path / "x")


def test_missing_file_is_not_reported_as_irregular(tmp_path: Path) -> None:
    assert find_irregular_kind(tmp_path / "missing") is None
    (tmp_path / "dangling").symlink_to("missing")
    assert find_irregular_kind(tmp_path / "dangling") is None
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "missing")
    with pytest.raises(OSError, match=r".") as caught:
        read_regular(Path("a\0b"))
    assert caught.value.strerror


@pytest.mark.parametrize("there", [True, False])
def test_replacing_symlink_updates_its_target(there: bool, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    target, link = tmp_path / "deep" / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"old")
    link.symlink_to(target)
    replace_regular(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert everything_in(tmp_path) == {link, target, target.parent}


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("fails", ["sync", "hook"])
def test_a_full_disk_leaves_an_existing_file_unchanged(
    there: bool, fails: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    path = tmp_path / "x"
    if there:
        path.write_bytes(b"old")
    before = everything_in(tmp_path)
    if fails == "sync":
        monkeypatch.setattr(os, "fsync", fail_on_full_disk)
    hook = fail_on_full_disk if fails == "hook" else None
    with pytest.raises(OSError, match="No space left on device"):
        replace_regular(path, b"new", once_complete=hook)
    assert everything_in(tmp_path) == before
    assert not there or path.read_bytes() == b"old"


@pytest.mark.parametrize("name", ["a[1].json", "*", "n" * 255, "ö" * 127, "-rf", "a b\n'\"$(x)"])
def test_any_name_is_written_and_cleaned_up(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / name
    replace_regular(path, b"content")
    assert everything_in(tmp_path) == {path}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raising(KeyboardInterrupt()))
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            replace_regular(path, b"half")
    assert len(everything_in(tmp_path)) == 2
    drop_leftovers(path)
    assert everything_in(tmp_path) == {path}
    assert read_regular(path) == b"content"


# --- directories ---

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


def test_folders_of_processes_are_deleted_once_these_are_dead(monkeypatch: Patch) -> None:
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
    assert living.returncode == 0
    assert not held.exists()


def test_libraries_get_a_folder_of_the_cache_or_of_the_process(home: Path) -> None:
    assert make_user_folder("things") == home / NAME / "things"
    (home / NAME).chmod(0o777)
    own = make_user_folder("things")
    assert own == make_user_folder("things")
    assert home not in own.parents
    assert own.stat().st_mode & 0o777 == 0o700


def test_next_block_deletes_only_dead_processes_folders(tmp_path: Path, monkeypatch: Patch) -> None:
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


def test_locks_are_in_no_folder_that_others_may_write_to(memory: Path, tmp_path: Path) -> None:
    make_locks_folder().chmod(0o777)
    with expect_refusal("is writable by other users", kind=BenchError):
        make_locks_folder()
    (tmp_path / "temporary").mkdir()
    assert make_locks_folder().parent == tmp_path / "temporary"


def test_cleanup_preserves_machine_lock_folder(memory: Path, monkeypatch: Patch) -> None:
    """Both may be in one directory, and no process locks the directory of the locks."""
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(memory))
    (make_locks_folder() / "lock").touch()
    os.utime(make_locks_folder(), (0, 0))
    with make_temporary_folder() as folder:
        assert folder.parent == memory
    assert (make_locks_folder() / "lock").exists()
