"""Damaged files of every corpus that is read from files.

They are refused in one line that names the file, or read if they are still well-formed, which a
separate strict check decides. Damage that does not change the text (a byte order mark, other line
endings) is refused, or the same instances are read.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterator, Mapping
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
from tests.support.in_time import in_time
from tests.support.sandbox import examples
from tests.support.well_formed import CHECKS, IllFormedError, count_instances

NAMES = tuple(EXCERPTS)
LIMIT_S, MAX_BYTES = 20, 6 * 2**30  # limits for reading a file
SAME_TEXT = ("bom", "cr")  # kinds of damage that the strict check does not cover
FEW, MANY = 30, 300  # examples for each corpus

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


def read_whole(corpus: str) -> Answer:
    """Read undamaged files; skips if that is not possible here."""
    whole = read(corpus, files_of(corpus))
    if "jieba" in whole.refusal:
        pytest.skip(whole.refusal)
    return whole


@pytest.mark.parametrize("name", NAMES)
@examples(FEW, MANY)
@given(data=st.data())
def test_damaged_files(name: str, data: st.DataObject) -> None:
    files, whole = files_of(name), read_whole(name)
    file = data.draw(st.sampled_from(list(files)))
    kind, content = data.draw(damages_of(files[file]))
    damaged = {**files, file: content}
    judge(name, kind, damaged, read(name, damaged), whole)


@pytest.mark.parametrize("name", NAMES)
def test_undamaged_files_are_well_formed_and_all_are_read(name: str) -> None:
    assert read_whole(name).n_read == count_instances(name, files_of(name)) > 1
    assert set(CHECKS) == set(NAMES)
