"""Only regular files are read and replaced; failures leave no partial files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dynbatch.harness.machine.files import (
    drop_leftovers,
    find_irregular_kind,
    read_regular,
    replace_regular,
)
from tests.support.in_time import in_time
from tests.support.odd_files import SPECIAL, everything_in, state


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


def test_a_fifo_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_failed_sync_leaves_existing_file_unchanged(
    there: bool, fault: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    if there:
        path.write_bytes(b"old")
    before = everything_in(tmp_path)

    def fail(_: int) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=os.strerror(fault)):
        replace_regular(path, b"new")
    assert everything_in(tmp_path) == before
    assert not there or path.read_bytes() == b"old"


def test_failing_completion_hook_leaves_existing_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fail(found: Path) -> None:
        assert found == path
        raise OSError(errno.ENOSPC, "no room")

    with pytest.raises(OSError, match="no room"):
        replace_regular(path, b"new", once_complete=fail)
    assert everything_in(tmp_path) == {path}
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("name", ["a[1].json", "*", "n" * 255, "ö" * 127, "-rf", "a b\n'\"$(x)"])
def test_any_name_is_written_and_its_leftovers_are_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    replace_regular(path, b"content")
    assert everything_in(tmp_path) == {path}

    def die(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", die)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            replace_regular(path, b"half")
    assert len(everything_in(tmp_path)) == 2
    drop_leftovers(path)
    assert everything_in(tmp_path) == {path}
    assert read_regular(path) == b"content"
