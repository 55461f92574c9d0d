"""Downloads that are wrong on purpose: one line each, and nothing is left or written elsewhere."""

from __future__ import annotations

import errno
import io
import os
import random
import struct
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from datasets import fetch as module
from datasets import impatient
from datasets.fetch import Opener, Response, faults, fetch
from harness.contracts.home import Archive, Files
from harness.errors import DataError
from tests.support.downloads import ARCHIVE, FILES, SHA256, everything_below, serving, zipped

ONE_FILE = Files("https://a.org/{name}", "corpus", names={"train": "train"}, most_bytes=1000)
LOCAL, CENTRAL = b"PK\3\4", b"PK\1\2"
# Of a member's headers: where each tells its flags, its way of compression and its whole length.
FLAGS, COMPRESSION, LENGTH = (6, 8), (8, 10), (22, 24)


def refused(home: Archive | Files, root: Path, opener: Opener, checked: bool = True) -> str:
    """Fetch what is refused, and see that nothing is there that was not; returns the line."""
    before = everything_below(root.parent)
    with pytest.raises(DataError) as caught:
        fetch(home, SHA256 if checked else None, root, opener=opener)
    assert everything_below(root.parent) == before
    line = str(caught.value)
    assert "\n" not in line
    return line


class Endless:
    """Sends for ever; a test that reads on is ended here."""

    def __init__(self, piece: bytes = bytes(999), n_most: int = 10_000) -> None:
        self.headers: dict[str, str] = {}
        self._piece, self._n_left = piece, n_most

    def read1(self, n_bytes: int, /) -> bytes:
        self._n_left -= 1
        assert self._n_left, "it was read on and on"
        return self._piece[:n_bytes]


def endless(piece: bytes = bytes(999)) -> Opener:
    def opener(url: str, timeout_s: float) -> AbstractContextManager[Response]:
        return nullcontext(Endless(piece))

    return opener


def test_an_endless_download_ends_where_the_data_set_does(tmp_path: Path) -> None:
    root = tmp_path / "data"
    archive = replace(ARCHIVE, most_bytes=5000)
    line = refused(archive, root, endless())
    assert "trees.zip sends more than 5994 bytes, and the data set at most 5000; nothing" in line
    known = replace(ONE_FILE, n_bytes={"train": 6})
    assert "sends more than 999 bytes, and the data set at most 6;" in refused(
        known, root, endless()
    )
    # Whoever switched the checks off may have another file.
    assert "at most 1000;" in refused(known, root, endless(), checked=False)


def test_a_download_that_is_told_to_be_too_long_is_not_begun(tmp_path: Path) -> None:
    line = refused(ONE_FILE, tmp_path / "data", serving(b"x", length=10**12))
    assert "https://a.org/train has 1000000000000 bytes, and the data set at most 1000;" in line


def test_a_server_that_drips_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(0, 10_000, 10))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(times)))
    line = refused(replace(ONE_FILE, most_bytes=10**6), tmp_path / "data", endless(b"x"))
    assert "https://a.org/train is too slow, 4 bytes in 40 s;" in line


def test_a_slow_but_steady_server_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 10_000, 20))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(times)))
    monkeypatch.setattr(impatient, "SLOWEST_BYTES_PER_S", 2)
    fetch(ONE_FILE, None, tmp_path, opener=serving(bytes(900)))
    assert (tmp_path / "corpus" / "train.txt").read_bytes() == bytes(900)


@pytest.mark.parametrize("length", [59, 61])
def test_another_length_than_told_is_refused(tmp_path: Path, length: int) -> None:
    line = refused(ONE_FILE, tmp_path / "data", serving(bytes(60), length=length))
    assert f"https://a.org/train ended after 60 of {length} bytes;" in line


@pytest.mark.parametrize("encoding", ["gzip", "br", "x-unheard-of"])
def test_what_came_encoded_is_refused(tmp_path: Path, encoding: str) -> None:
    opener = serving(b"x", encoding=encoding)
    assert f"came encoded as '{encoding}'" in refused(ONE_FILE, tmp_path / "d", opener, False)


def patched(content: bytes, places: tuple[int, int], kind: str, value: int) -> bytes:
    """Write a number to all headers of an archive, where the local and the central one have it."""
    changed = bytearray(content)
    for magic, place in zip((LOCAL, CENTRAL), places, strict=True):
        at = content.find(magic)
        while at >= 0:
            struct.pack_into(kind, changed, at + place, value)
            at = content.find(magic, at + 4)
    return bytes(changed)


def bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for member in ARCHIVE.members.values():
            opened.writestr(member, bytes(10**7))
    return buffer.getvalue()


ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "encrypted": (lambda: patched(zipped(), FLAGS, "<H", 1), "t/train.txt is encrypted"),
    "unknown compression": (
        lambda: patched(zipped(), COMPRESSION, "<H", 99),
        "t/train.txt is compressed in a way that is not known",
    ),
    "bzip2 that is none": (
        lambda: patched(zipped(), COMPRESSION, "<H", zipfile.ZIP_BZIP2),
        "compressed in a way",
    ),
    "deflated that is not": (
        lambda: patched(zipped(), COMPRESSION, "<H", zipfile.ZIP_DEFLATED),
        "is a damaged zip file: t/train.txt cannot be read",
    ),
    "bomb": (bomb, "t/train.txt has 10000000 bytes, and the data set at most 20000;"),
    "bomb that lies": (
        lambda: patched(bomb(), LENGTH, "<I", 100),
        "is a damaged zip file: t/train.txt cannot be read",
    ),
    "not a zip file": (lambda: bytes(500), "did not give a zip file"),
    "empty": (lambda: b"", "did not give a zip file"),
}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("checked", [True, False])
def test_an_awkward_archive_is_refused(tmp_path: Path, name: str, checked: bool) -> None:
    content, reason = ARCHIVES[name]
    archive = replace(ARCHIVE, most_bytes=20_000)
    assert reason in refused(archive, tmp_path / "data", serving(content()), checked)


def test_a_member_is_no_longer_than_declared(tmp_path: Path) -> None:
    archive = replace(ARCHIVE, n_bytes={"train": 5, "dev": 6})
    line = refused(archive, tmp_path / "data", serving(zipped()))
    assert "t/train.txt has 6 bytes, and the data set at most 5;" in line


def test_members_are_written_nowhere_else(tmp_path: Path) -> None:
    """An archive cannot say where: a member's name is looked for, and is no path here."""
    members = {"train": "../../outside.txt", "dev": "/tmp/outside.txt"}
    archive = replace(ARCHIVE, members=members)
    fetch(archive, SHA256, tmp_path / "a" / "data", opener=serving(zipped(archive)))
    placed = {"a", "a/data", "a/data/corpus", "a/data/corpus/train.txt", "a/data/corpus/dev.txt"}
    assert everything_below(tmp_path) == placed


def test_no_damage_to_an_archive_is_a_traceback_or_another_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of them take their time
    whole, rng, n_refused = zipped(), random.Random(1), 0
    cuts = [whole[:n] for n in range(0, len(whole), 7)]
    for k in range(300):
        changed = bytearray(whole)
        for _ in range(1 + k % 3):
            changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        cuts.append(bytes(changed))
    for content in cuts:
        root = tmp_path / "data"
        try:
            fetch(ARCHIVE, None, root, opener=serving(content))
        except DataError:
            n_refused += 1
            continue
        assert {split: ARCHIVE.path(root, split).read_bytes() for split in FILES} == FILES
    assert n_refused > len(cuts) // 2
    assert everything_below(tmp_path) <= {"data", "data/corpus"} | {
        f"data/corpus/{split}.txt" for split in FILES
    }


@pytest.mark.parametrize("home", [ONE_FILE, ARCHIVE])
def test_a_full_disk_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Archive | Files
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    line = refused(home, tmp_path / "data", serving(zipped()), checked=False)
    assert f"cannot write below {tmp_path}/data (No space left on device); choose" in line


def test_a_folder_in_a_file_s_place_is_named_and_nothing_is_placed(tmp_path: Path) -> None:
    in_the_way = tmp_path / "corpus" / "dev.txt"
    in_the_way.mkdir(parents=True)
    line = refused(ARCHIVE, tmp_path, serving(zipped()))
    assert f"{in_the_way} is a folder; move it away; nothing was placed" in line


def test_a_file_that_cannot_be_read_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(ARCHIVE, SHA256, tmp_path, opener=serving(zipped()))

    def unreadable(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", unreadable)
    assert faults(ARCHIVE, SHA256, tmp_path) == dict.fromkeys(SHA256, "not readable")
