"""The words of a lexicon in a sentence: jieba's dictionary (MIT licence), read without its code.

Source: https://pypi.org/project/jieba, dict.txt: 349 046 lines of a word, its frequency and its
part of speech. Importing jieba would print, and its tokenizer would build a cache; neither is
needed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from datasets.reading.parts import decoded
from harness.errors import DataError
from harness.machine.regular_files import read_regular

PACKAGE = "jieba"
FILE = "jieba/dict.txt"


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of two or more characters; `name` and `sha256` say which."""

    name: str
    words: frozenset[str]
    sha256: str

    def words_into(self, sentence: str, max_length: int) -> list[list[str]]:
        """Return for each character the words of 2 to max_length that end with it, longest first.

        So many substrings are looked up; no word is left out because of another.
        """
        ending: list[list[str]] = [[] for _ in sentence]
        for length in range(min(max_length, len(sentence)), 1, -1):
            for start in range(len(sentence) - length + 1):
                word = sentence[start : start + length]
                if word in self.words:
                    ending[start + length - 1].append(word)
        return ending


def jieba_lexicon(sha256: str | None = None) -> Lexicon:
    """Return the dictionary of the installed jieba; sha256 is that expected, None for any.

    Raises DataError where jieba is not installed, or its file is missing or another.
    """
    lexicon = _read()
    if sha256 not in (None, lexicon.sha256):
        raise DataError(
            f"the dictionary of {lexicon.name} has sha256 {lexicon.sha256}, expected {sha256}; run"
            " `pip install -c constraints.txt jieba`, or set dataset.options.sha256.lexicon=null"
        )
    return lexicon


@cache
def _read() -> Lexicon:
    """Read the file, once per process."""
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        raise DataError(
            f"the lexicon needs the package {PACKAGE}, which is not installed; run"
            f" `pip install {PACKAGE}`, or use dataset=weibo_lattice or dataset=lattice_synthetic"
        ) from None
    path = Path(str(package.locate_file(FILE)))
    try:
        content = read_regular(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); run `pip install --force-reinstall"
            f" {PACKAGE}`"
        ) from None
    words = (line.partition(" ")[0] for line in decoded(content, str(path)).split("\n"))
    return Lexicon(
        name=f"{PACKAGE} {package.version}",
        words=frozenset(word for word in words if len(word) > 1),
        sha256=hashlib.sha256(content).hexdigest(),
    )
