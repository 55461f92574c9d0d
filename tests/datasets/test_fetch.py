"""Downloads of `bench-data fetch` without a network: all files, or none and a one-line error."""

from __future__ import annotations

import errno
import hashlib
import http.client
import io
import os
import random
import struct
import urllib.error
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from dynbatch.datasets.parts import fetch as module
from dynbatch.datasets.parts.fetch import Opener, Response, fetch, find_faults, is_complete
from dynbatch.harness.contracts.home import Home
from dynbatch.harness.errors import DataError
from tests.support.downloads import ARCHIVE, FILES, SHA256, everything_below, serving, zipped
from tests.support.odd_files import fail_on_full_disk
from tests.support.refusals import expect_refusal, raising

Patch = pytest.MonkeyPatch


def refuse(home: Home, root: Path, opener: Opener, *reasons: str, checked: bool = True) -> None:
    """Expect a download to fail in one line, and to leave all files as they were."""
    before = everything_below(root.parent)
    with expect_refusal(*reasons, kind=DataError):
        fetch(home, SHA256 if checked else None, root, opener=opener)
    assert everything_below(root.parent) == before


def test_a_download_places_checked_files_and_nothing_else(tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    content = zipped()
    root = tmp_path / "new" / "data"
    fetch(ARCHIVE, SHA256, root, lambda done, total: steps.append((done, total)), serving(content))
    assert everything_below(root) == {"corpus", "corpus/train.txt", "corpus/dev.txt"}
    for split, text in FILES.items():
        assert ARCHIVE.locate_part(root, split).read_bytes() == text
    assert steps[-1] == (len(content), len(content))
    assert steps == sorted(steps)
    assert is_complete(ARCHIVE, SHA256, root)


def test_files_may_have_an_address_each(tmp_path: Path) -> None:
    home = Home("https://a.org/x.{name}", "corpus", suffix=".conll", note="it moves")
    content = b"a line"
    sha256 = dict.fromkeys(("train", "dev", "test"), hashlib.sha256(content).hexdigest())
    fetch(home, sha256, tmp_path, opener=serving(content))
    assert everything_below(tmp_path) == {"corpus"} | {f"corpus/{split}.conll" for split in sha256}
    assert is_complete(home, sha256, tmp_path)
    wrong = f"https://a.org/x.dev has sha256 {sha256['dev']}, expected 00; no file"
    remedy = "put the files of https://a.org/x.{train,dev,test} at "
    places = f"{tmp_path}/corpus/{{train,dev,test}}.conll; or choose a generated corpus"
    with expect_refusal(wrong, remedy, places, " (it moves)", kind=DataError):
        fetch(home, {"dev": "00"}, tmp_path, opener=serving(content))


SEVERAL = Home(
    "https://a.org/data/{name}",
    "pairs",
    {"train_en": "train.en", "train_vi": "train.vi", "vocab_en": "vocab.en"},
    suffix=None,
)


def serving_by_name(contents: dict[str, Opener]) -> Opener:
    """Return an opener that chooses the response by the last part of the address."""

    def opener(url: str, timeout_s: float) -> AbstractContextManager[Response]:
        return contents[url.rpartition("/")[2]](url, timeout_s)

    return opener


def test_a_split_may_need_several_files_that_are_called_as_there(tmp_path: Path) -> None:
    content = {name: f"of {name}\n".encode() for name in SEVERAL.names.values()}
    sha256 = {
        part: hashlib.sha256(content[name]).hexdigest() for part, name in SEVERAL.names.items()
    }
    opener = serving_by_name({name: serving(text) for name, text in content.items()})
    fetch(SEVERAL, sha256, tmp_path, opener=opener)
    assert everything_below(tmp_path) == {"pairs", *(f"pairs/{name}" for name in content)}
    assert is_complete(SEVERAL, sha256, tmp_path)
    (tmp_path / "pairs" / "train.vi").unlink()
    found = find_faults(SEVERAL, sha256 | {"vocab_en": "00"}, tmp_path)
    assert found == {"train_vi": "missing", "vocab_en": "changed"}
    files = "{train.en,train.vi,vocab.en}"
    remedy = f"put the files of https://a.org/data/{files} at {tmp_path}/pairs/{files}; or choose"
    with expect_refusal("https://a.org/data/vocab.en has sha256", remedy, kind=DataError):
        fetch(SEVERAL, sha256 | {"vocab_en": "00"}, tmp_path, opener=opener)


@pytest.mark.parametrize("n_sent", [0, 3])
def test_one_of_several_downloads_cut_off_leaves_nothing(tmp_path: Path, n_sent: int) -> None:
    cut = serving(b"cut off"[:n_sent], length=7)
    whole = serving(b"whole")
    opener = serving_by_name({"train.en": whole, "train.vi": cut, "vocab.en": whole})
    reason = f"data/train.vi ended after {n_sent} of 7 bytes"
    refuse(SEVERAL, tmp_path / "data", opener, reason, checked=False)


def test_a_download_replaces_wrong_files_and_keeps_others(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    ARCHIVE.locate_part(tmp_path, "train").write_bytes(b"wrong")
    (tmp_path / "corpus" / "notes").write_bytes(b"mine")
    assert not is_complete(ARCHIVE, SHA256, tmp_path)
    fetch(ARCHIVE, SHA256, tmp_path, opener=serving(zipped()))
    assert is_complete(ARCHIVE, SHA256, tmp_path)
    assert (tmp_path / "corpus" / "notes").read_bytes() == b"mine"


def test_checks_can_be_switched_off(tmp_path: Path) -> None:
    fetch(ARCHIVE, None, tmp_path, opener=serving(zipped(files=FILES | {"dev": b"own"})))
    assert is_complete(ARCHIVE, None, tmp_path)
    assert is_complete(ARCHIVE, {"train": SHA256["train"], "dev": None}, tmp_path)
    assert not is_complete(ARCHIVE, SHA256, tmp_path)


@pytest.mark.parametrize("length", ["", "abc", "-5", "1_0", "\xb2", "9" * 5000])
def test_a_length_that_is_none_is_unknown(tmp_path: Path, length: str) -> None:
    steps: list[tuple[int, int | None]] = []
    opener = serving(zipped(), length=length)
    fetch(ARCHIVE, SHA256, tmp_path, lambda *step: steps.append(step), opener)
    assert is_complete(ARCHIVE, SHA256, tmp_path)
    assert {total for _, total in steps} == {None}
    lost = serving(zipped(), length=length, failure=ConnectionResetError(104, "reset"))
    with pytest.raises(DataError, match="reset"):
        fetch(ARCHIVE, None, tmp_path / "new", opener=lost)
    assert not (tmp_path / "new").exists()


# Faults of servers are in tests/commands/test_data_command.py.
MOVED = urllib.error.HTTPError("u", 404, "Not Found", http.client.HTTPMessage(), None)
NETWORK_FAULTS = {
    "no network": (raising(urllib.error.URLError(OSError(-2, "unknown name"))), "unknown name"),
    "not found": (raising(MOVED), "Not Found"),
    "no member": (serving(zipped(files={"train": b"(2 a)\n"})), "no item named 'd'"),
    "wrong checksum": (
        serving(zipped(files=FILES | {"dev": b"(2 c)\n"})),
        f"sha256 {hashlib.sha256(b'(2 c)' + bytes([10])).hexdigest()}, expected {SHA256['dev']}",
    ),
}


@pytest.mark.parametrize("name", NETWORK_FAULTS)
@pytest.mark.parametrize("was_there", [True, False])
def test_a_failed_download_leaves_nothing(tmp_path: Path, name: str, was_there: bool) -> None:
    opener, reason = NETWORK_FAULTS[name]
    root = tmp_path / "data"
    if was_there:
        (root / "corpus").mkdir(parents=True)
        ARCHIVE.locate_part(root, "train").write_bytes(b"old")
    refuse(ARCHIVE, root, opener, reason, "example.org")
    assert not was_there or ARCHIVE.locate_part(root, "train").read_bytes() == b"old"


def test_an_interrupted_download_leaves_nothing(tmp_path: Path) -> None:
    opener = serving(zipped()[:70], failure=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fetch(ARCHIVE, SHA256, tmp_path / "data", opener=opener)
    assert everything_below(tmp_path) == set()


ONE_FILE = Home("https://a.org/{name}", "corpus", names={"train": "train"}, most_bytes=1000)
DECLARED = replace(ARCHIVE, n_bytes={"train": 5, "dev": 6})


def test_a_slow_but_steady_server_is_waited_for(tmp_path: Path, monkeypatch: Patch) -> None:
    times = iter(range(0, 10_000, 20))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(times)))
    monkeypatch.setattr(module, "SLOWEST_BYTES_PER_S", 2)
    fetch(ONE_FILE, None, tmp_path, opener=serving(bytes(900)))
    assert (tmp_path / "corpus" / "train.txt").read_bytes() == bytes(900)


@pytest.mark.parametrize(
    ("home", "opener", "reason"),
    [
        (ONE_FILE, serving(b"x", length=2000), "a.org/train has 2000 bytes, expected at most 1000"),
        (ONE_FILE, serving(bytes(60), length=59), "a.org/train ended after 60 of 59 bytes;"),
        (DECLARED, serving(zipped()), "t/train.txt has 6 bytes, expected at most 5;"),
    ],
)
def test_wrong_length_is_refused(home: Home, opener: Opener, reason: str, tmp_path: Path) -> None:
    refuse(home, tmp_path / "data", opener, reason)


LOCAL, CENTRAL = b"PK\3\4", b"PK\1\2"
# Offsets in a member's local and central header: flags, compression and full length.
FLAGS, COMPRESSION, LENGTH = (6, 8), (8, 10), (22, 24)


def patched(content: bytes, places: tuple[int, int], kind: str, value: int) -> bytes:
    """Write a number to all headers of an archive.

    Args:
        places: offsets in local and in central headers.
        kind: format of the number, as in struct.
    """
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
        for member in ARCHIVE.names.values():
            opened.writestr(member, bytes(10**7))
    return buffer.getvalue()


DAMAGED = "is a damaged zip file: cannot read t/train.txt"
ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "encrypted": (lambda: patched(zipped(), FLAGS, "<H", 1), "t/train.txt is encrypted"),
    "unknown compression": (lambda: patched(zipped(), COMPRESSION, "<H", 99), "unsupported comp"),
    "not deflated": (lambda: patched(zipped(), COMPRESSION, "<H", zipfile.ZIP_DEFLATED), DAMAGED),
    "bomb": (bomb, "t/train.txt has 10000000 bytes, expected at most 20000;"),
    "bomb that lies": (lambda: patched(bomb(), LENGTH, "<I", 100), DAMAGED),
    "not a zip file": (lambda: bytes(500), "is not a zip file"),
}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("checked", [True, False])
def test_an_awkward_archive_is_refused(tmp_path: Path, name: str, checked: bool) -> None:
    content, reason = ARCHIVES[name]
    archive = replace(ARCHIVE, most_bytes=20_000)
    refuse(archive, tmp_path / "data", serving(content()), reason, checked=checked)


def test_members_are_written_nowhere_else(tmp_path: Path) -> None:
    """Names of members select their content and are not used as paths."""
    members = {"train": "../../outside.txt", "dev": "/tmp/outside.txt"}
    archive = replace(ARCHIVE, names=members)
    fetch(archive, SHA256, tmp_path / "a" / "data", opener=serving(zipped(archive)))
    placed = {"a", "a/data", "a/data/corpus", "a/data/corpus/train.txt", "a/data/corpus/dev.txt"}
    assert everything_below(tmp_path) == placed


def test_no_damage_to_an_archive_is_a_traceback_or_another_text(tmp_path: Path) -> None:
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
        assert {split: ARCHIVE.locate_part(root, split).read_bytes() for split in FILES} == FILES
    assert n_refused > len(cuts) // 2
    assert everything_below(tmp_path) <= {"data", "data/corpus"} | {
        f"data/corpus/{split}.txt" for split in FILES
    }


@pytest.mark.parametrize("home", [ONE_FILE, ARCHIVE])
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: Patch, home: Home) -> None:
    monkeypatch.setattr(os, "fsync", fail_on_full_disk)
    reason = f"cannot write to {tmp_path}/data (No space left on device); choose"
    refuse(home, tmp_path / "data", serving(zipped()), reason, checked=False)


def test_a_folder_in_a_file_s_place_is_named_and_nothing_is_placed(tmp_path: Path) -> None:
    in_the_way = tmp_path / "corpus" / "dev.txt"
    in_the_way.mkdir(parents=True)
    reason = f"{in_the_way} is a directory; remove it; no file was changed"
    refuse(ARCHIVE, tmp_path, serving(zipped()), reason)


def test_a_file_that_cannot_be_read_is_at_fault(tmp_path: Path, monkeypatch: Patch) -> None:
    fetch(ARCHIVE, SHA256, tmp_path, opener=serving(zipped()))
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(Path, "read_bytes", raising(denied))
    assert find_faults(ARCHIVE, SHA256, tmp_path) == dict.fromkeys(SHA256, "not readable")
