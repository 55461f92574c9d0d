"""Caches: private to the user, intact, and written atomically by concurrent processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynbatch.harness.machine import caches
from dynbatch.harness.machine.caches import (
    NAME,
    cache_on_disk,
    delete_oldest,
    keep_packed,
    make_answers_folder,
    make_cache_folder,
    read_cached,
    unpack_kept,
    write_cached,
)
from tests.support.odd_files import DAMAGES, fail_on_full_disk

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]
CALLS: list[bytes] = []  # calls of the cached function


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: Patch) -> Iterator[Path]:
    home = tmp_path / "home" / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    caches._print_once.cache_clear()
    make_answers_folder.cache_clear()
    CALLS.clear()
    yield home
    make_answers_folder.cache_clear()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_folder_is_private_to_user(home: Path, capsys: Output) -> None:
    before = os.umask(0)
    try:
        folder = make_cache_folder("things")
    finally:
        os.umask(before)
    assert folder == home / NAME / "things"
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)
    assert capsys.readouterr().err == ""


def test_an_older_folder_that_others_could_read_is_closed(home: Path) -> None:
    (home / NAME / "things").mkdir(parents=True)
    for folder in (home / NAME, home / NAME / "things"):
        folder.chmod(0o755)
    assert make_cache_folder("things") == home / NAME / "things"
    assert (mode(home / NAME), mode(home / NAME / "things")) == (0o700, 0o700)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("bits", [0o777, 0o1777, 0o770, 0o702])
def test_shared_folder_is_rejected(home: Path, capsys: Output, inner: bool, bits: int) -> None:
    wrong = home / NAME / "things" if inner else home / NAME
    (home / NAME / "things").mkdir(parents=True)
    (home / NAME).chmod(0o700)
    wrong.chmod(bits)
    assert make_cache_folder("things") is None
    assert make_cache_folder("things") is None
    printed = capsys.readouterr().err
    assert printed.splitlines() == [
        f"{wrong} is writable by other users (mode {bits:o}), so its caches are not used; remove it"
    ]
    assert wrong.stat().st_mode & 0o7777 == bits


def test_folder_of_another_user_is_not_used(home: Path, capsys: Output, monkeypatch: Patch) -> None:
    (home / NAME).mkdir(parents=True)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert make_cache_folder("things") is None
    assert f"{home / NAME} belongs to another user (uid {owner})" in capsys.readouterr().err


@pytest.mark.parametrize("in_the_way", ["home", "folder"])
def test_uncreatable_folder_is_none_silently(home: Path, capsys: Output, in_the_way: str) -> None:
    blocked = home if in_the_way == "home" else home / NAME
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file")
    assert make_cache_folder("things") is None
    assert capsys.readouterr().err == ""
    assert blocked.read_text() == "a file"


def test_of_too_many_files_the_older_half_goes(tmp_path: Path) -> None:
    for k in range(9):
        (tmp_path / str(k)).touch()
        os.utime(tmp_path / str(k), ns=(k, k))
    delete_oldest(tmp_path, 9)
    assert len(list(tmp_path.iterdir())) == 9
    (tmp_path / "folder").mkdir()
    delete_oldest(tmp_path, 8)
    assert {path.name for path in tmp_path.iterdir()} == {"5", "6", "7", "8", "folder"}
    delete_oldest(tmp_path / "none", 1)


CONTENT = bytes(range(256)) * 9


def test_written_entry_can_be_read_back(tmp_path: Path) -> None:
    place = tmp_path / "new" / "entry"
    assert read_cached(place) is None
    for content in (CONTENT, b"", b"other"):
        write_cached(place, content)
        assert read_cached(place) == content
    assert [path.name for path in place.parent.iterdir()] == ["entry"]
    assert (mode(place.parent), mode(place)) == (0o700, 0o600)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry_is_a_cache_miss_and_is_replaced(tmp_path: Path, damage: str) -> None:
    place, other = tmp_path / "entry", tmp_path / "other"
    write_cached(place, CONTENT)
    write_cached(other, b"another answer")
    DAMAGES[damage](place, other)
    assert read_cached(place) is None
    write_cached(place, CONTENT)
    assert read_cached(place) == CONTENT
    assert read_cached(other) == b"another answer"


@pytest.mark.parametrize("n_bit", range(0, 8 * (32 + len(CONTENT)), 997))
def test_no_changed_bit_goes_unnoticed(tmp_path: Path, n_bit: int) -> None:
    place = tmp_path / "entry"
    write_cached(place, CONTENT)
    stored = bytearray(place.read_bytes())
    stored[n_bit // 8] ^= 1 << n_bit % 8
    place.write_bytes(stored)
    assert read_cached(place) is None


def test_entry_owned_by_another_user_is_ignored(tmp_path: Path, monkeypatch: Patch) -> None:
    place = tmp_path / "entry"
    write_cached(place, CONTENT)
    monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    assert read_cached(place) is None


@pytest.mark.parametrize("fails", ["open", "fsync", "replace", "mkdir"])
def test_on_a_full_disk_nothing_is_kept_and_nothing_left(
    tmp_path: Path, monkeypatch: Patch, fails: str
) -> None:
    place = tmp_path / "entry"
    write_cached(place, b"old")
    before = place.read_bytes()
    home = os if fails == "fsync" else Path
    with monkeypatch.context() as patch:
        patch.setattr(home, fails, fail_on_full_disk)
        write_cached(place, CONTENT)
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]
    assert place.read_bytes() == before


def test_all_is_on_the_disk_before_it_is_in_its_place(tmp_path: Path, monkeypatch: Patch) -> None:
    """Otherwise a power failure could leave an empty file with the right name."""
    place, on_disk = tmp_path / "entry", []

    def seen(descriptor: int) -> None:
        on_disk.append((os.fstat(descriptor).st_size, place.exists()))

    monkeypatch.setattr(os, "fsync", seen)
    write_cached(place, CONTENT)
    assert on_disk == [(32 + len(CONTENT), False)]


def fill(place: Path, n_times: int, barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    for _ in range(n_times):
        write_cached(place, CONTENT)


def test_processes_may_fill_the_same_entry(tmp_path: Path) -> None:
    place, context = tmp_path / "entry", multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    writers = [context.Process(target=fill, args=(place, 60, barrier)) for _ in range(3)]
    for writer in writers:
        writer.start()
    barrier.wait()
    found = set()
    while any(writer.is_alive() for writer in writers):
        found.add(read_cached(place))
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert found <= {CONTENT, None}
    assert read_cached(place) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


FILES = {"a.so": b"\0\1" * 500, "deep/er/b.py": b"x = 1"}


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """Return an entry with the packed files of a directory."""
    for name, content in FILES.items():
        path = tmp_path / "filled" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "filled" / "a.lock").touch()
    keep_packed(tmp_path / "filled", tmp_path / "entry")
    return tmp_path / "entry"


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_files_are_found_again_except_locks_and_none_of_a_damaged_entry(
    entry: Path, tmp_path: Path
) -> None:
    whole = entry.read_bytes()
    for content, found in ((whole[:-1], {}), (whole, FILES)):
        entry.write_bytes(content)
        unpack_kept(entry, tmp_path / "new")
        assert files_of(tmp_path / "new") == found


def test_existing_file_is_kept_and_never_written_in_place(
    entry: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """A process may have loaded it."""
    loaded = tmp_path / "new" / "a.so"
    loaded.parent.mkdir()
    loaded.write_bytes(b"as loaded")
    unpack_kept(entry, tmp_path / "new")
    assert files_of(tmp_path / "new") == FILES | {"a.so": b"as loaded"}
    with loaded.open("rb") as file:
        monkeypatch.setattr(Path, "exists", lambda _: False)  # it appears after the look
        unpack_kept(entry, tmp_path / "new")
        assert file.read() == b"as loaded"
    assert files_of(tmp_path / "new") == FILES


def words_of(content: bytes, word: str) -> list[str]:
    CALLS.append(content)
    return [part + word for part in content.decode().split()]


def write(path: Path, text: str, at_ns: int) -> Path:
    path.write_text(text)
    os.utime(path, ns=(at_ns, at_ns))
    return path


def test_it_is_worked_out_once_by_this_process_and_by_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one two", 1)
    first = cache_on_disk(words_of)
    assert first(path, "!") == first(path, "!") == ["one!", "two!"]
    assert cache_on_disk(words_of)(path, "!") == ["one!", "two!"]  # like a call of another process
    assert len(CALLS) == 1


def test_other_content_argument_or_code_is_recomputed(tmp_path: Path, monkeypatch: Patch) -> None:
    ask = cache_on_disk(words_of)
    path = write(tmp_path / "a.txt", "one", 1)
    assert ask(path, "") == ["one"]
    assert ask(write(path, "two", 2), "") == ["two"]
    assert ask(path, "?") == ["two?"]
    assert len(CALLS) == 3
    monkeypatch.setattr(caches, "_hash_code", lambda file: b"edited")
    assert cache_on_disk(words_of)(path, "?") == ["two?"]
    assert len(CALLS) == 4


def test_result_is_computed_when_cache_is_unavailable(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make_answers_folder.cache_clear()
    path = write(tmp_path / "a.txt", "one", 1)
    assert make_answers_folder() is None
    assert cache_on_disk(words_of)(path, "") == cache_on_disk(words_of)(path, "") == ["one"]


def test_too_many_answers_are_forgotten(tmp_path: Path, home: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(caches, "MAX_ANSWERS", 2)
    for k in range(3):
        cache_on_disk(words_of)(write(tmp_path / f"{k}.txt", str(k), 1), "")
    caches._limit_answers.cache_clear()  # the next process
    cache_on_disk(words_of)(write(tmp_path / "3.txt", "3", 1), "")
    assert len(list((home / NAME / caches.FOLDER).iterdir())) == 1 + 1  # newest old entry, new one
