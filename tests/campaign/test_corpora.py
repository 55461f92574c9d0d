"""Damaged files of every corpus that is read from files.

They are refused in one line that names the file, or read if they are still well-formed: a separate
strict check decides that line by line, except where the damage does not change the text.
"""

from __future__ import annotations

import hashlib
import re
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.contracts.corpus import hash_inputs, load_corpus
from dynbatch.harness.contracts.home import find_home
from dynbatch.harness.errors import BenchError
from tests.support.corpora import EXCERPTS
from tests.support.processes import in_time
from tests.support.sandbox import examples

NAMES = tuple(EXCERPTS)
LIMIT_S, MAX_BYTES = 20, 6 * 2**30  # limits for reading a file
SAME_TEXT = ("bom", "cr")  # kinds of damage that the strict check does not cover

Lines = list[bytes]
BYTES = (*(bytes([byte]) for byte in b"()\t \n|0#\0"), b"\xff")
HUGE = (b"99999999999999999999", b"2147483648", b"-1", b"1e309", b"4294967296", b"00", b"\xd9\xa3")
RECODED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda content: content,
    "bom": lambda content: b"\xef\xbb\xbf" + content,
    "crlf": lambda content: content.replace(b"\n", b"\r\n"),
    "cr": lambda content: content.replace(b"\n", b"\r"),
    "utf16": lambda content: content.decode("utf-8").encode("utf-16"),
}
# Changes to the line at the first number; some use the line at the second one.
REWRITTEN: dict[str, Callable[[Lines, int, int], Lines]] = {
    "doubled": lambda lines, at, _: [*lines[: at + 1], *lines[at:]],
    "dropped": lambda lines, at, _: [*lines[:at], *lines[at + 1 :]],
    "moved": lambda lines, at, to: [*lines[:at], lines[to], *lines[at + 1 :]],
    "deep": lambda lines, at, _: [*lines[:at], b"(1 " * 3000, *lines[at:]],
    "long": lambda lines, at, _: [*lines[:at], lines[at][:-1] * 300, *lines[at:]],
    "blank": lambda lines, at, _: [*lines[:at], b"\n", *lines[at:]],
}
KINDS = ("flipped", "inserted", "cut", "huge", *RECODED, *REWRITTEN)


@st.composite
def damages_of(draw: st.DrawFn, content: bytes) -> tuple[str, bytes]:
    """Draw a kind of damage, and the damaged bytes of a file."""
    kind = draw(st.sampled_from(KINDS))
    at = draw(st.integers(0, len(content) - 1))
    if kind in RECODED:
        return kind, RECODED[kind](content)
    if kind == "flipped":
        byte = content[at] ^ 1 << draw(st.integers(0, 7))
        return kind, content[:at] + bytes([byte]) + content[at + 1 :]
    if kind == "inserted":
        return kind, content[:at] + draw(st.sampled_from(BYTES)) + content[at:]
    if kind == "cut":
        return kind, content[:at]
    if kind == "huge":
        words = content.split(b" ")
        words[at % len(words)] = draw(st.sampled_from(HUGE))
        return kind, b" ".join(words)
    lines = content.splitlines(keepends=True)
    to = draw(st.integers(0, len(lines) - 1))
    return kind, b"".join(REWRITTEN[kind](lines, at % len(lines), to))


@cache
def files_of(name: str) -> dict[str, bytes]:
    """Return the files of an excerpt that its training part reads, by path below the root."""
    home = find_home(f"dynbatch.datasets.{name}")
    assert home is not None
    read = {file: text for file, text in EXCERPTS[name].items() if file[:5] in ("train", "vocab")}
    return {f"{home.folder}/{file}": text.encode() for file, text in read.items()}


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of reading files: a refusal, or a digest and the number of instances."""

    refusal: str = ""
    content: str = ""
    n_read: int = 0


def read(corpus: str, files: Mapping[str, bytes]) -> Answer:
    """Write the files of a corpus to a directory, and read all instances."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        try:
            with in_time(LIMIT_S), bounded_memory():
                found = load_corpus(f"dynbatch.datasets.{corpus}", "train", root, sha256=None)
                instances = found.instances[:]
        except BenchError as error:
            return Answer(str(error))
    sizes = repr(sorted(found.sizes.items())).encode()
    content = hash_inputs([instances]) + hashlib.sha256(sizes).hexdigest()
    return Answer("", content, len(instances) + sum(found.skipped.values()))


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Limit the address space of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def judge(name: str, kind: str, files: Mapping[str, bytes], answer: Answer, whole: Answer) -> None:
    """Fail if a reader accepted invalid files or refused valid ones."""
    assert "\n" not in answer.refusal
    if kind in SAME_TEXT:
        assert answer.refusal or answer.content == whole.content, "the same text is read as another"
        return
    fault, n_expected = "", 0
    try:
        n_expected = count_instances(name, files)
    except IllFormedError as error:
        fault = str(error)
    assert bool(answer.refusal) == bool(fault), f"{fault or 'nothing'} is wrong, but {answer}"
    assert fault or answer.n_read == n_expected


@pytest.mark.parametrize("name", NAMES)
@examples(30, 300)
@given(data=st.data())
def test_damaged_files(name: str, data: st.DataObject) -> None:
    files = files_of(name)
    file = data.draw(st.sampled_from(list(files)))
    kind, content = data.draw(damages_of(files[file]))
    damaged = {**files, file: content}
    judge(name, kind, damaged, read(name, damaged), read(name, files))


@pytest.mark.parametrize("name", NAMES)
def test_undamaged_files_are_well_formed_and_all_are_read(name: str) -> None:
    assert read(name, files_of(name)).n_read == count_instances(name, files_of(name)) > 1
    assert set(CHECKS) == set(NAMES)


# --- number of instances in well-formed files, without the readers under test ---

# `(n word)` or `(n x x)`, where x, a NUL character, stands for a vertex that was matched before.
VERTEX = re.compile(r"\([0-4](?:[ \t]+[^()\0 \t]+[ \t]*|[ \t]*\0[ \t]*\0[ \t]*)\)")
NUMBER = re.compile(r"[0-9]{1,9}")


class IllFormedError(Exception):
    """Error for files that violate their format."""


def count_instances(name: str, files: Mapping[str, bytes]) -> int:
    """Return the number of instances in the files of a corpus."""
    return CHECKS[name]({place: _text(content) for place, content in files.items()})


def _text(content: bytes) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise IllFormedError("not UTF-8") from error
    _need("\0" not in text, "a NUL character")
    text = text.replace("\r\n", "\n")
    _need("\r" not in text, "a carriage return alone")
    return text


def _need(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise IllFormedError(otherwise)


def _lines(text: str) -> list[str]:
    """Return the lines without the blank ones at the end."""
    text = re.sub(r"(\n[ \t]*)+$", "", f"\n{text}")
    _need(bool(text), "empty")
    return text[1:].split("\n")


def _sst(files: Mapping[str, str]) -> int:
    lines = _lines(files["sst/train.txt"])
    for line in lines:
        _need(_is_tree(line), f"no tree: {line[:40]}")
    return len(lines)


def _is_tree(line: str) -> bool:
    """Check for a binary tree with labels 0 to 4."""
    while (reduced := VERTEX.sub("\0", line)) != line:
        line = reduced
    return line.strip(" \t") == "\0"


def _ptb(files: Mapping[str, str]) -> int:
    lines = _lines(files["ptb/train.txt"])
    for line in lines:
        words = line.split()
        _need(bool(words) and "<eos>" not in words, "an empty sentence, or an end within it")
    return len(lines)


def _wikiner(files: Mapping[str, str]) -> int:
    lines = _lines(files["wikiner/train.txt"])
    for line in lines:
        _need(bool(line.strip()), "an empty sentence")
        for token in line.split(" "):
            word, _, tag = token.rpartition("|")
            _need(bool(word and tag) and "\t" not in token, f"no word|tag: {token[:40]}")
    tokens = " ".join(lines).split(" ")
    _need(any(token.count("|") == 1 for token in tokens), "all have a part of speech")
    return len(lines)


def _iwslt15(files: Mapping[str, str]) -> int:
    sides = [_lines(files[f"iwslt15/train.{side}"]) for side in ("en", "vi")]
    _need(len(sides[0]) == len(sides[1]), "sides of unequal length")
    marks = {"<s>", "</s>", "|||"}
    for line in (*sides[0], *sides[1]):
        _need(bool(line.split()), "an empty sentence")
        _need(not marks & set(line.split()), "a mark within a sentence")
    for side in ("en", "vi"):
        words = _lines(files[f"iwslt15/vocab.{side}"])
        _need(all(len(word.split()) == 1 for word in words), "not a word a line")
        _need(len(set(words)) == len(words), "a word twice")
        _need({"<unk>", "<s>", "</s>"} <= set(words), "no marks")
    return len(sides[0])


def _ud_ewt(files: Mapping[str, str]) -> int:
    """Count trees; readers omit those that are not projective, so the counts may differ."""
    text = "\n".join(_lines(files["ud_ewt/train.conllu"]))
    text = re.sub(r"(?m)^[ \t]+$", "", text)  # a blank line may have blanks
    blocks = re.split(r"\n\n+", text.strip("\n"))
    for block in blocks:
        rows = [line.split("\t") for line in block.split("\n") if not line.startswith("#")]
        words = [row for row in rows if not re.fullmatch(r"[0-9]+[-.][0-9]+", row[0])]
        _need(bool(words), "a sentence without words")
        for number, row in enumerate(words, 1):
            _need(len(row) == 10 and row[0] == str(number), "no row of ten columns in order")
            _need(all(row[at].strip() for at in (1, 3, 7)), "an empty column")
            _need("_" not in (row[3], row[7]), "no part of speech or relation")
            _need(NUMBER.fullmatch(row[6]) is not None, "a head that is no number")
        _need(_is_one_tree([int(row[6]) for row in words]), "no tree with one root")
    return len(blocks)


def _is_one_tree(heads: Sequence[int]) -> bool:
    """Check that every word leads to the only root (head 0) without a cycle."""
    if heads.count(0) != 1 or max(heads) > len(heads):
        return False
    above = [0, *heads]
    places = list(above)
    for _ in heads:
        places = [above[at] for at in places]
    return not any(places)


def _weibo_lattice(files: Mapping[str, str]) -> int:
    text = files["lattice/train.txt"]
    _need(re.fullmatch(r"[0-9 \t\n]*", text) is not None, "more than numbers and blanks")
    rows = [re.findall(r"[0-9]+", line) for line in text.removesuffix("\n").split("\n")]
    _need(all(NUMBER.fullmatch(word) for row in rows for word in row), "a number too large")
    numbers = [[int(word) for word in row] for row in rows]
    _need(len(numbers[0]) == 1 and numbers[0][0] > 0, "no number of lattices")
    at = 1
    for _ in range(numbers[0][0]):
        at = _end_of_lattice(numbers, at)
    _need(not any(numbers[at:]), "more than the lattices that are announced")
    return numbers[0][0]


def _end_of_lattice(rows: Sequence[Sequence[int]], at: int) -> int:
    _need(at < len(rows) and len(rows[at]) == 1 and rows[at][0] >= 2, "no number of states")
    n = rows[at][0]
    _need(at + 2 + n <= len(rows), "too few lines")
    tags, states = rows[at + 1], rows[at + 2 : at + 2 + n]
    _need(len(tags) == n and tags[0] == 0 and max(tags) < 18, "wrong tags")
    _need(list(states[0]) == [0], "arcs into state 0")
    for state, row in enumerate(states[1:], 1):
        _need(bool(row) and row[0] >= 1 and len(row) == 1 + 2 * row[0], "wrong number of arcs")
        sources = row[1::2]
        _need(sources[0] == state - 1, "the first arc is not the character's")
        _need(all(source < state - 1 for source in sources[1:]), "an arc not from before")
    end = at + 2 + n
    # The last lattice needs it too: otherwise its last number might be truncated.
    _need(end < len(rows) and not rows[end], "no blank line")
    return end + 1


CHECKS: dict[str, Callable[[Mapping[str, str]], int]] = {
    "sst": _sst,
    "ptb": _ptb,
    "wikiner": _wikiner,
    "iwslt15": _iwslt15,
    "ud_ewt": _ud_ewt,
    "weibo_lattice": _weibo_lattice,
}
