"""Parts of a corpus that is read from files: which one a split is, and its text line by line."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.contracts.home import SPLITS, Checksums, Home, checksum_of, read_checked
from harness.errors import ConfigError, DataError


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
        content, digest = read_checked(path, checksum_of(sha256, part), name)
        return Part(path, lines_of(content, str(path)), digest)

    return read


def lines_of(content: bytes, place: str) -> list[str]:
    """Return the lines of a file's bytes; `place` names the file in errors.

    Raises DataError where there is none, or with the line where it is not UTF-8.
    """
    text = decoded(content, place)
    # Not splitlines(), which also splits at characters that a word may contain.
    lines = text.removesuffix("\n").split("\n")
    if lines == [""]:
        raise DataError(f"{place} is empty; get it again, or use another file")
    return lines


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
