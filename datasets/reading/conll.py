r"""Reader of labelled sentences, one character a line: `<character><position>\t<label>`.

The format of Weibo NER's second release: the position of the character in its word follows it
without a blank, and may be missing; a blank line ends a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from datasets.reading.parts import decoded
from harness.errors import DataError

LINE = re.compile(r"([^\t]+?)\d*\t(\S+)")


@dataclass(frozen=True, slots=True)
class Sentence:
    """Characters with their labels; a character may be of several code points."""

    characters: tuple[str, ...]
    labels: tuple[str, ...]
    first_line: int

    @property
    def text(self) -> str:
        """One code point a character: longer ones, which no word contains, are replaced."""
        return "".join(c if len(c) == 1 else "\ufffd" for c in self.characters)


def read_sentences(content: bytes, place: str) -> list[Sentence]:
    """Parse a file's bytes; `place` names the file in errors.

    Raises DataError with file, line and reason where the content is not in the format.
    """
    text = decoded(content, place)
    sentences: list[Sentence] = []
    open_: list[tuple[str, str]] = []
    # Not splitlines(), which also splits at characters that a sentence may contain.
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line:
            match = LINE.fullmatch(line)
            if match is None:
                raise DataError(
                    f"{place}:{number}: {line[:40]!r} is not a character, a tab and a label"
                )
            open_.append((match[1], match[2]))
        elif open_:
            characters, labels = zip(*open_, strict=True)
            sentences.append(Sentence(characters, labels, number - len(open_)))
            open_ = []
    if not sentences:
        raise DataError(f"{place} is empty; it needs one character and its label a line")
    return sentences
