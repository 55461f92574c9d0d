"""What is remembered of files: right after every edit, and where no folder can be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.machine import remembered as module
from harness.machine.caches import NAME
from harness.machine.remembered import answers_folder, remembered
from tests.support.damages import DAMAGES

CALLS: list[bytes] = []


def words_of(content: bytes, word: str) -> list[str]:
    CALLS.append(content)
    return [part + word for part in content.decode().split()]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answers_folder.cache_clear()
    CALLS.clear()
    yield tmp_path / "cache" / NAME / module.FOLDER
    answers_folder.cache_clear()


def write(path: Path, text: str, at_ns: int) -> Path:
    path.write_text(text)
    os.utime(path, ns=(at_ns, at_ns))
    return path


def test_it_is_worked_out_once_by_this_process_and_by_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one two", 1)
    first = remembered(words_of)
    assert first(path, "!") == first(path, "!") == ["one!", "two!"]
    assert remembered(words_of)(path, "!") == ["one!", "two!"]  # as another process would ask
    assert len(CALLS) == 1


def test_an_edit_and_another_word_are_worked_out_anew(tmp_path: Path) -> None:
    ask = remembered(words_of)
    path = write(tmp_path / "a.txt", "one", 1)
    assert ask(path, "") == ["one"]
    assert ask(write(path, "two", 2), "") == ["two"]
    assert ask(path, "?") == ["two?"]
    assert len(CALLS) == 3


def test_what_works_it_out_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.txt", "one", 1)
    remembered(words_of)(path, "")
    monkeypatch.setattr(module, "_code_of", lambda file: b"edited")
    remembered(words_of)(path, "")
    assert len(CALLS) == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_answer_is_replaced(tmp_path: Path, own_folder: Path, damage: str) -> None:
    path = write(tmp_path / "a.txt", "one", 1)
    remembered(words_of)(path, "")
    (answer,) = own_folder.iterdir()
    whole = answer.read_bytes()
    remembered(words_of)(path, "!")
    other = next(place for place in own_folder.iterdir() if place != answer)
    DAMAGES[damage](answer, other)
    assert remembered(words_of)(path, "") == ["one"]
    assert len(CALLS) == 3
    assert answer.read_bytes() == whole


def test_where_nothing_can_be_kept_it_is_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    answers_folder.cache_clear()
    path = write(tmp_path / "a.txt", "one", 1)
    assert answers_folder() is None
    assert remembered(words_of)(path, "") == remembered(words_of)(path, "") == ["one"]


def test_too_many_answers_are_forgotten(
    tmp_path: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ANSWERS", 2)
    for k in range(3):
        remembered(words_of)(write(tmp_path / f"{k}.txt", str(k), 1), "")
    answers_folder.cache_clear()  # the next process
    remembered(words_of)(write(tmp_path / "3.txt", "3", 1), "")
    assert len(list(own_folder.iterdir())) == 1 + 1  # the newest and the new one
