"""Entries of caches: found only as they were written, written whole, by several at once."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from harness.machine import kept as module
from harness.machine.kept import keep, kept
from tests.support.damages import DAMAGES

CONTENT = bytes(range(256)) * 9


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    place = tmp_path / "new" / "entry"
    assert kept(place) is None
    for content in (CONTENT, b"", b"other"):
        keep(place, content)
        assert kept(place) == content
    assert [path.name for path in place.parent.iterdir()] == ["entry"]
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert place.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_damaged_is_not_found_and_is_replaced(tmp_path: Path, damage: str) -> None:
    place, other = tmp_path / "entry", tmp_path / "other"
    keep(place, CONTENT)
    keep(other, b"another answer")
    DAMAGES[damage](place, other)
    assert kept(place) is None
    keep(place, CONTENT)
    assert kept(place) == CONTENT
    assert kept(other) == b"another answer"


@pytest.mark.parametrize("n_bit", range(0, 8 * (32 + len(CONTENT)), 997))
def test_no_changed_bit_goes_unnoticed(tmp_path: Path, n_bit: int) -> None:
    place = tmp_path / "entry"
    keep(place, CONTENT)
    stored = bytearray(place.read_bytes())
    stored[n_bit // 8] ^= 1 << n_bit % 8
    place.write_bytes(stored)
    assert kept(place) is None


def test_what_may_not_be_read_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "entry"
    keep(place, CONTENT)
    place.chmod(0)

    def refused(*_: object) -> int:  # also where tests run as root, who may read all
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        assert kept(place) is None
    keep(place, CONTENT)
    assert kept(place) == CONTENT


def test_what_is_another_user_s_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "entry"
    keep(place, CONTENT)
    monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    assert kept(place) is None


@pytest.mark.parametrize("fails", ["mkstemp", "fsync", "replace", "mkdir"])
def test_on_a_full_disk_nothing_is_kept_and_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    place = tmp_path / "entry"
    keep(place, b"old")
    before = place.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    home = {"mkstemp": module.tempfile, "fsync": os}.get(fails, Path)
    with monkeypatch.context() as patch:
        patch.setattr(home, fails, full)
        keep(place, CONTENT)
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]
    assert place.read_bytes() == before


def test_all_is_on_the_disk_before_it_is_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves an empty file of the right name."""
    place, on_disk = tmp_path / "entry", []

    def seen(descriptor: int) -> None:
        on_disk.append((os.fstat(descriptor).st_size, place.exists()))

    monkeypatch.setattr(os, "fsync", seen)
    keep(place, CONTENT)
    assert on_disk == [(32 + len(CONTENT), False)]


def fill(place: Path, n_times: int, barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    for _ in range(n_times):
        keep(place, CONTENT)


def test_processes_may_fill_the_same_entry(tmp_path: Path) -> None:
    place, context = tmp_path / "entry", multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    writers = [context.Process(target=fill, args=(place, 60, barrier)) for _ in range(3)]
    for writer in writers:
        writer.start()
    barrier.wait()
    found = set()
    while any(writer.is_alive() for writer in writers):
        found.add(kept(place))
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert found <= {CONTENT, None}
    assert kept(place) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]
