"""One rule for the bytes of every corpus that is read: what is passed over, and what is refused."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from datasets.reading.lexicon import jieba_lexicon
from harness.contracts.corpus import Corpus, load_corpus
from harness.contracts.home import home_of
from harness.errors import DataError
from harness.values.places import ROOT
from tests.support.corpora import TINY
from tests.support.lattice_texts import GOOD
from tests.support.sentence_files import IWSLT, PTB, UD, WIKINER, write

WEIBO = "ab0\tO\nb1\tB-PER\n\na\tO\n"
# Of every reader the files that it needs; the first is the one that is changed.
FILES: dict[str, Mapping[str, str]] = {
    "sst": {"train.txt": TINY},
    "ptb": {"train.txt": PTB["train"]},
    "wikiner": {"train.txt": WIKINER["train"]},
    "ud_ewt": {"train.conllu": UD["train"]},
    "iwslt15": IWSLT,
    "weibo_lattice": {"train.txt": GOOD},
    "weibo_lexicon": {"train.conll": WEIBO},
}
READERS = sorted(FILES)
PASSED_OVER = {
    "a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "carriage returns before line feeds": lambda content: content.replace(b"\n", b"\r\n"),
    "no newline at the end": lambda content: content.rstrip(b"\n"),
}
REFUSED = {
    "no UTF-8": (lambda content: content + b"\xff", "not UTF-8 text"),
    "a NUL character": (lambda content: content + b"\0", "a NUL character"),
    "UTF-16": (lambda content: content.decode().encode("utf-16-le"), "a NUL character"),
    "carriage returns alone": (
        lambda content: content.replace(b"\n", b"\r"),
        "a carriage return alone",
    ),
    "one in a line": (lambda content: b"\r" + content, "a carriage return alone"),
}


def read(name: str, root: Path) -> Corpus:
    return load_corpus(f"datasets.{name}", "train", root)


def place(name: str, root: Path) -> Path:
    """Write the files of a reader; returns the one to change."""
    home = home_of(f"datasets.{name}")
    assert home is not None
    write(root / home.folder, FILES[name])
    return root / home.folder / next(iter(FILES[name]))


def same(first: Corpus, second: Corpus) -> bool:
    """Whether two corpora have equal instances."""
    pairs = zip(first.instances[:], second.instances[:], strict=True)
    return first.sizes == second.sizes and all(
        np.array_equal(getattr(one, item.name), getattr(other, item.name))
        for one, other in pairs
        for item in fields(one)
        if item.init
    )


def test_no_reader_of_the_folder_is_left_out() -> None:
    """What has a home is read from files; a generated corpus has none."""
    modules = {path.stem: path for path in (ROOT / "datasets").glob("[!_]*.py")}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    with_a_home = {
        name
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "HOME" for target in node.targets)
    }
    assert with_a_home == set(FILES)


@pytest.mark.parametrize("change", PASSED_OVER)
@pytest.mark.parametrize("name", [name for name in READERS if name != "weibo_lattice"])
def test_what_every_reader_passes_over(name: str, change: str, tmp_path: Path) -> None:
    file = place(name, tmp_path)
    expected = read(name, tmp_path)
    changed = PASSED_OVER[change](file.read_bytes())
    assert changed != file.read_bytes()
    file.write_bytes(changed)
    assert same(read(name, tmp_path), expected)


def test_lattices_end_with_a_blank_line_without_which_a_number_may_be_cut(tmp_path: Path) -> None:
    file = place("weibo_lattice", tmp_path)
    expected, content = read("weibo_lattice", tmp_path), file.read_bytes()
    for change in ("a byte order mark", "carriage returns before line feeds"):
        file.write_bytes(PASSED_OVER[change](content))
        assert same(read("weibo_lattice", tmp_path), expected)
    file.write_bytes(content.rstrip(b"\n"))
    with pytest.raises(DataError, match="it is truncated"):
        read("weibo_lattice", tmp_path)


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("name", READERS)
def test_what_every_reader_refuses_in_one_line(name: str, change: str, tmp_path: Path) -> None:
    file = place(name, tmp_path)
    spoil, words = REFUSED[change]
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(DataError) as fault:
        read(name, tmp_path)
    line = str(fault.value)
    assert line.startswith(f"{file}:")
    assert words in line
    assert line.endswith("save the file as UTF-8, its lines ended by a line feed")
    assert "\n" not in line
    assert "\r" not in line


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("kind", "words"), [("pipe", "a FIFO"), ("folder", "a folder")])
def test_what_is_no_file_is_told_and_not_waited_for(
    name: str, kind: str, words: str, tmp_path: Path
) -> None:
    file = place(name, tmp_path)
    file.unlink()
    os.mkfifo(file) if kind == "pipe" else file.mkdir()
    with pytest.raises(DataError, match=words) as fault:
        read(name, tmp_path)
    assert "\n" not in str(fault.value)


def test_a_dictionary_of_words_is_read_by_the_same_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dict.txt"

    class Package:
        version = "0"

        def locate_file(self, _: str) -> Path:
            return file

    monkeypatch.setattr("datasets.reading.lexicon.distribution", lambda _: Package())
    read_anew = jieba_lexicon.__globals__["_read"].__wrapped__
    file.write_bytes(b"\xef\xbb\xbfab 3 n\r\nbc 2 n\r\n")
    assert read_anew().words == {"ab", "bc"}
    file.write_bytes(b"ab 3 n\rbc 2 n\r")
    with pytest.raises(DataError, match=r"dict\.txt:1: a carriage return alone"):
        read_anew()
