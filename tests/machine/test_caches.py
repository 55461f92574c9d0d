"""Folders of caches: this user's alone, or not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.machine import caches
from harness.machine.caches import NAME, cache_folder, forget_the_oldest

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home" / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    caches._say_once.cache_clear()
    return home


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_is_this_user_s_alone(home: Path, capsys: Output) -> None:
    before = os.umask(0)
    try:
        folder = cache_folder("things")
    finally:
        os.umask(before)
    assert folder == home / NAME / "things"
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)
    assert capsys.readouterr().err == ""


def test_an_older_folder_that_others_could_read_is_closed(home: Path) -> None:
    (home / NAME / "things").mkdir(parents=True)
    for folder in (home / NAME, home / NAME / "things"):
        folder.chmod(0o755)
    assert cache_folder("things") == home / NAME / "things"
    assert (mode(home / NAME), mode(home / NAME / "things")) == (0o700, 0o700)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("bits", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_not_used_and_one_line_says_so(
    home: Path, capsys: Output, inner: bool, bits: int
) -> None:
    wrong = home / NAME / "things" if inner else home / NAME
    (home / NAME / "things").mkdir(parents=True)
    (home / NAME).chmod(0o700)
    wrong.chmod(bits)
    assert cache_folder("things") is None
    assert cache_folder("things") is None
    said = capsys.readouterr().err
    assert said.splitlines() == [
        f"{wrong} may be written by others (mode {bits:o}): caches in it are not used; remove it"
    ]
    assert wrong.stat().st_mode & 0o7777 == bits


def test_a_folder_of_another_user_is_not_used(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / NAME).mkdir(parents=True)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache_folder("things") is None
    assert f"{home / NAME} belongs to another user (number {owner})" in capsys.readouterr().err


@pytest.mark.parametrize("in_the_way", ["home", "folder"])
def test_where_none_can_be_made_there_is_none(home: Path, capsys: Output, in_the_way: str) -> None:
    blocked = home if in_the_way == "home" else home / NAME
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file")
    assert cache_folder("things") is None
    assert capsys.readouterr().err == ""
    assert blocked.read_text() == "a file"


def test_of_too_many_files_the_older_half_goes(tmp_path: Path) -> None:
    for k in range(9):
        (tmp_path / str(k)).touch()
        os.utime(tmp_path / str(k), ns=(k, k))
    forget_the_oldest(tmp_path, 9)
    assert len(list(tmp_path.iterdir())) == 9
    (tmp_path / "folder").mkdir()
    forget_the_oldest(tmp_path, 8)
    assert {path.name for path in tmp_path.iterdir()} == {"5", "6", "7", "8", "folder"}
    forget_the_oldest(tmp_path / "none", 1)
