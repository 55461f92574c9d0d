"""Text of a corpus's files by part and line, rows of words in tables, instances built on demand."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, overload

import numpy as np

from harness.contracts.home import SPLITS, Checksums, Home, checksum_of, read_checked
from harness.errors import ConfigError, DataError
from harness.values.arrays import IntArray, int_array
from harness.values.instances import Instance

T = TypeVar("T", bound=Instance)


class LazyInstances(Sequence[T], Generic[T]):
    """`size` instances; `build(index)` is called once per index, a slice is a tuple.

    A short trial touches a few hundred of a corpus's thousands of instances; building the rest
    would cost more than the trial.
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
class Part:
    """The lines of one file, without their ends; `sha256` is that of its bytes."""

    path: Path
    lines: list[str]
    sha256: str

    def fault(self, index: int, reason: str) -> DataError:
        """Return the error for a line, which is counted from 0."""
        return DataError(f"{self.path}:{index + 1}: {reason}")

    def refuse_empty(self, what: str) -> None:
        """Raise DataError for the first line that holds nothing but blanks."""
        for index, line in enumerate(self.lines):
            if not line or line.isspace():
                raise self.fault(index, f"the sentence is empty; {what}")


PartReader = Callable[[str], Part]


def part_reader(name: str, home: Home, root: Path | None, sha256: Checksums) -> PartReader:
    """Return what reads and checks the file of a part of a corpus, by the name of the part.

    Raises DataError, at once without a root, else for a file that is missing, empty, not in UTF-8
    (file:line), or has another checksum than the part's in sha256.
    """
    if root is None:
        raise DataError(
            f"{name} needs a data_root; set BENCH_DATA to the folder that holds {home.folder}/"
        )

    def read(part: str) -> Part:
        path = home.path(root, part)
        return split_text(path, *read_checked(path, checksum_of(sha256, part), name))

    return read


def split_text(path: Path, content: bytes, sha256: str) -> Part:
    """Return the lines of a file's bytes.

    Raises DataError where there is none, or with the line where it is not UTF-8.
    """
    # Not splitlines(), which also splits at characters that a word may contain.
    lines = decoded(content, str(path)).removesuffix("\n").split("\n")
    if lines == [""]:
        raise DataError(f"{path} is empty; get it again, or use another file")
    return Part(path, lines, sha256)


def decoded(content: bytes, place: str) -> str:
    """Return the text of a file's bytes, its lines ended by a line feed.

    The one rule of all corpora: UTF-8, where a byte order mark before the first line is passed over
    and a carriage return before a line feed belongs to the line's end.

    Raises DataError with the line where it is not UTF-8, has a NUL character (UTF-16 has many, and
    much of it passes for UTF-8), or a carriage return alone: it may end lines or stand in a word.
    """
    content = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_text(content, place, error.start, "not UTF-8 text") from None
    for sign, name in (("\0", "a NUL character"), ("\r", "a carriage return alone")):
        if sign in text:
            raise _not_text(content, place, content.index(sign.encode()), name)
    return text


def _not_text(content: bytes, place: str, wrong: int, found: str) -> DataError:
    line = content.count(b"\n", 0, wrong) + 1
    return DataError(
        f"{place}:{line}: {found}; save the file as UTF-8, its lines ended by a line feed"
    )


def part_of(split: str, vocabulary: str) -> str:
    """Return the part that a split is read from.

    vocabulary: the part that words are numbered by. It takes the training split's place: on a
    machine without the training file `dev` makes a corpus of the development file alone.

    Raises ConfigError where there is no such part.
    """
    if vocabulary not in SPLITS:
        raise ConfigError(
            f"dataset.options.vocabulary={vocabulary} is unknown; choose one of {', '.join(SPLITS)}"
        )
    return vocabulary if split == "train" else split


def name_with(name: str, vocabulary: str) -> str:
    """Return the name of a corpus, which tells when another part takes the training split's place.

    So ptb is ptb_dev where its words are numbered by the development part.
    """
    return name if vocabulary == "train" else f"{name}_{vocabulary}"


def check_modulo(modulo: int) -> None:
    """Raise ConfigError for a negative number of rows that all words share."""
    if modulo < 0:
        raise ConfigError(
            f"vocab_modulo={modulo} is not allowed; give 0 for a row per word, or how many rows all"
            " words share"
        )


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows for the ids 0 to n_known - 1 of the training split, and one for all that it lacks.

    modulo: 0, or the number of rows that all ids share as id modulo it; ED-Batch's release does so
    with 256, and has no row for unknown words.

    Raises ConfigError for a negative modulo.
    """

    n_known: int
    modulo: int = 0

    def __post_init__(self) -> None:
        check_modulo(self.modulo)

    @property
    def size(self) -> int:
        """Rows of the table."""
        return self.modulo or self.n_known + 1

    def of(self, ids: object) -> IntArray:
        """Return the row of each id, which may be above those of the training split."""
        ids = np.asarray(ids)
        return int_array(ids % self.modulo if self.modulo else np.minimum(ids, self.n_known))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Rows of words: `known` by word, `unknown` for all others; `size` of them."""

    known: Mapping[str, int]
    unknown: int
    size: int

    def row(self, word: str) -> int:
        """Return the row of a word."""
        return self.known.get(word, self.unknown)


def vocabulary_of(words: Iterable[str], modulo: int = 0) -> Vocabulary:
    """Number the words of a part by first appearance; modulo as in TableRows."""
    distinct = list(dict.fromkeys(words))
    rows = TableRows(len(distinct), modulo)
    *known, unknown = rows.of(range(len(distinct) + 1)).tolist()
    return Vocabulary(dict(zip(distinct, known, strict=True)), unknown, rows.size)
