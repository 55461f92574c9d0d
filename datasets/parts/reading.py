"""Lines of corpus files, numbering of words as embedding rows, and lazily built instances."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, overload

import numpy as np

from dynbatch.harness.contracts.corpus import OWN_SPLIT
from dynbatch.harness.contracts.home import (
    Checksums,
    Home,
    compute_checksum,
    find_checksum,
    find_checksum_mismatch,
    read_checked,
)
from dynbatch.harness.errors import DataError
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.instances import Instance

T = TypeVar("T", bound=Instance)
# First bytes of compressed files, by format.
COMPRESSED = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ", "bzip2": b"BZh", "zip": b"PK\x03\x04"}


class LazyInstances(Sequence[T], Generic[T]):
    """Sequence of `size` instances; `build(index)` is called once per index, a slice is a tuple.

    A short trial uses a few hundred of a corpus's thousands of instances; building the others would
    take longer than the trial.
    """

    __slots__ = ("_build", "_built")

    def __init__(self, size: int, build: Callable[[int], T]) -> None:
        self._build = build
        self._built: list[T | None] = [None] * size

    def __len__(self) -> int:
        return len(self._built)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        instance = self._built[index]
        if instance is None:
            instance = self._build(index % len(self))
            self._built[index] = instance
        return instance


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """A file of a corpus.

    Attributes:
        lines: lines without line ends, and without the blank lines at the end of the file.
        n_blank: number of blank lines at the end of the file.
    """

    path: Path
    lines: list[str]
    sha256: str
    n_blank: int = 0

    def build_error(self, index: int, reason: str) -> DataError:
        """Return the error for the line of an index, which starts from 0."""
        return DataError(f"{self.path}:{index + 1}: {reason}")

    def check_no_empty_lines(self, what: str) -> None:
        """Check that no line is empty or has only white space.

        Args:
            what: rule at the end of the message.
        """
        for index, line in enumerate(self.lines):
            if not line or line.isspace():
                raise self.build_error(index, f"the sentence is empty: {what}")


PartReader = Callable[[str], CorpusPart]


def make_part_reader(
    name: str, home: Home, root: Path | None, sha256: Checksums, path: str | None = None
) -> PartReader:
    """Return a function that reads and checks the file of a named part of a corpus.

    Args:
        path: file of the user's own, which is read in place of every part.

    Raises:
        DataError: without a root. The returned function raises it for a file that is missing,
            empty, not UTF-8 (with file:line), or has another checksum.
    """
    if path is not None:
        own = read_own_file(Path(path), find_checksum(sha256, OWN_SPLIT))
        return lambda part: own
    if root is None:
        raise DataError(
            f"{name} needs a data_root; set BENCH_DATA to the directory with {home.folder}/"
        )

    def read(part: str) -> CorpusPart:
        path = home.locate_part(root, part)
        return split_text(path, *read_checked(path, find_checksum(sha256, part), name))

    return read


def read_own_file(path: Path, sha256: str | None = None) -> CorpusPart:
    """Read a file of the user's own.

    Args:
        sha256: checksum when the trial was planned, or None.
    """
    try:
        content = read_regular(path)
    except OSError as error:
        raise DataError(
            f"dataset.path={path} cannot be read ({error.strerror}); choose a text file"
        ) from None
    wrong = find_checksum_mismatch(sha256, content)
    if wrong is not None:
        raise DataError(f"dataset.path={path} has changed: {wrong}; run the command again")
    return split_text(path, content, compute_checksum(None, content))


def find_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line of each sentence and the line after its last.

    Blank lines separate sentences.
    """
    start = 0
    for index, line in enumerate([*lines, ""]):
        if not line.strip():
            if index > start:
                yield start, index
            start = index + 1


def split_text(path: Path, content: bytes, sha256: str) -> CorpusPart:
    """Return a file from its bytes."""
    # Not splitlines(), which also splits at characters that a word may contain.
    lines = decode_text(content, str(path)).removesuffix("\n").split("\n")
    n_lines = max((k for k, line in enumerate(lines, 1) if line.strip(" \t")), default=0)
    if n_lines == 0:
        raise DataError(f"{path} is empty; download it again or choose another file")
    return CorpusPart(path, lines[:n_lines], sha256, len(lines) - n_lines)


def decode_text(content: bytes, path: str) -> str:
    """Decode a file's bytes; lines end with a line feed.

    All corpora are UTF-8. A byte order mark at the start is skipped, and a carriage return before a
    line feed is part of the line end.

    Raises:
        DataError: with the line, for text that is not UTF-8, a NUL character (UTF-16 has many, and
            much of it is valid UTF-8), or a carriage return without a line feed, which is
            ambiguous.
    """
    content = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        form = next((form for form, start in COMPRESSED.items() if content.startswith(start)), None)
        if form is not None:
            raise DataError(f"{path} is compressed ({form}); decompress it first") from None
        raise _build_text_error(content, path, error.start, "not UTF-8 text") from None
    for sign, name in (("\0", "a NUL character"), ("\r", "a carriage return without a line feed")):
        if sign in text:
            raise _build_text_error(content, path, content.index(sign.encode()), name)
    return text


def _build_text_error(content: bytes, path: str, wrong: int, problem: str) -> DataError:
    line = content.count(b"\n", 0, wrong) + 1
    return DataError(f"{path}:{line}: {problem}; save the file as UTF-8 with line feeds")


def select_part(split: str, vocabulary: str) -> str:
    """Return the part that a split is read from.

    Args:
        vocabulary: part whose words are numbered, and that is read as the training split. `dev`
            makes a corpus of the development file only, for machines without the training file.
    """
    return vocabulary if split == "train" else split


def format_corpus_name(name: str, vocabulary: str) -> str:
    """Return the name of a corpus, with a suffix if another part is read as the training split.

    For example, ptb is ptb_dev if its words are numbered by the development part.
    """
    return name if vocabulary == "train" else f"{name}_{vocabulary}"


@dataclass(frozen=True, slots=True)
class TableRows:
    """Mapping of ids to embedding rows.

    Attributes:
        n_known: number of ids of the training split; larger ids share one more row.
        modulo: 0, or the number of rows, to which ids are mapped modulo it. ED-Batch's release does
            so with 256, and has no row for unknown words.
    """

    n_known: int
    modulo: int = 0

    @property
    def size(self) -> int:
        return self.modulo or self.n_known + 1

    def find_rows(self, ids: object) -> IntArray:
        """Return the row of each id; ids may be larger than those of the training split."""
        ids = np.asarray(ids)
        return as_int_array(ids % self.modulo if self.modulo else np.minimum(ids, self.n_known))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Mapping of words to embedding rows."""

    known: Mapping[str, int]
    unknown: int
    size: int

    def find_row(self, word: str) -> int:
        return self.known.get(word, self.unknown)


def build_vocabulary(words: Iterable[str], modulo: int = 0) -> Vocabulary:
    """Build a vocabulary of words numbered by first appearance; `modulo` as in TableRows."""
    distinct = list(dict.fromkeys(words))
    rows = TableRows(len(distinct), modulo)
    *known, unknown = rows.find_rows(range(len(distinct) + 1)).tolist()
    return Vocabulary(dict(zip(distinct, known, strict=True)), unknown, rows.size)
