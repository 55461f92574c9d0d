r"""Lattices over Weibo NER sentences, with words from jieba's dictionary.

Sources: Peng and Dredze, EMNLP 2015, second release (He and Sun, 2016),
https://github.com/hltcoe/golden-horse, data/weiboNER_2nd_conll.*: 1350, 270 and 270 sentences;
construction: Zhang and Yang, ACL 2018: every lexicon word of two or more characters in a sentence
is an arc; words may overlap.

Comparison with the lattices of ED-Batch's release (weibo_lattice, in parentheses), on the training
splits: 54.7 characters per sentence (43.1); 0.307 words per character (0.541, from another
lexicon), hence 1.31 arcs into a state (1.54): 71.4% of the states have one, 26.7% two and 1.9% more
(51.9%, 42.7% and 5.4%); 89.2% of the words have two characters and 0.06% more than four (86.1% and
0.6%). Both have 18 classes: 17 labels, and class 0 for the state before the first character.

The text has a character per line, `<character><position>\t<label>`. The position of the character
in its word follows it without a space and is optional; a blank line ends a sentence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.reading import (
    CorpusPart,
    LazyInstances,
    Vocabulary,
    build_vocabulary,
    decode_text,
    make_part_reader,
)
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.home import Checksums, Home, find_checksum
from dynbatch.harness.errors import DataError
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.checked import Count, CountOrNone
from dynbatch.harness.values.instances import Lattice

NAME = "weibo_lexicon"
START = 0  # the class of the state before the first character
HOME = Home(
    url="https://raw.githubusercontent.com/hltcoe/golden-horse/master/data/"
    "weiboNER_2nd_conll.{name}",
    folder="weibo",
    suffix=".conll",
    n_bytes={"train": 536039, "dev": 105881, "test": 108767},
    note="the expected checksums are from a copy, not from this address; if they differ, set"
    " dataset.options.sha256=null",
)

PACKAGE = "jieba"
FILE = "jieba/dict.txt"
LINE = re.compile(r"([^\t]+?)\d*\t(\S+)")

Words = Sequence[Sequence[str]]  # words that end with each character, longest first


@dataclass(frozen=True, slots=True)
class LabelledText:
    """Characters of a sentence with their labels.

    Attributes:
        first: index of the line of the first character.
    """

    characters: tuple[str, ...]
    labels: tuple[str, ...]
    first: int

    @property
    def text(self) -> str:
        """Text with one code point per character; longer ones, which no word has, are replaced."""
        return "".join(c if len(c) == 1 else "\ufffd" for c in self.characters)


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of two or more characters in jieba's dictionary (MIT license).

    Source: https://pypi.org/project/jieba, dict.txt: 349,046 lines of a word, its frequency and its
    part of speech. It is read without jieba's code, which would print and build a cache.
    """

    name: str
    words: frozenset[str]
    sha256: str

    def find_words(self, sentence: str, max_length: int) -> list[list[str]]:
        """Return the words of 2 to max_length that end with each character, longest first.

        All substrings of these lengths are looked up, so that words may overlap.
        """
        ending: list[list[str]] = [[] for _ in sentence]
        for length in range(min(max_length, len(sentence)), 1, -1):
            for start in range(len(sentence) - length + 1):
                word = sentence[start : start + length]
                if word in self.words:
                    ending[start + length - 1].append(word)
        return ending


@dataclass(frozen=True, slots=True)
class LabelTables:
    """Rows of characters and words, and classes of labels, of the training split."""

    characters: Vocabulary
    words: Vocabulary
    classes: Mapping[str, int]

    def build_lattice(self, sentence: LabelledText, into: Words) -> Lattice:
        """Build the lattice of a sentence; state i follows character i - 1."""
        sources: list[int] = []
        tokens: list[int] = []
        for before, (character, ending) in enumerate(zip(sentence.characters, into, strict=True)):
            sources += [before, *(before + 1 - len(word) for word in ending)]
            tokens += [self.characters.find_row(character), *map(self.words.find_row, ending)]
        return Lattice(
            tags=as_int_array([START, *(self.classes[label] for label in sentence.labels)]),
            arc_start=as_int_array(np.cumsum([0, 0, *(1 + len(ending) for ending in into)])),
            sources=as_int_array(sources),
            tokens=as_int_array(tokens),
        )


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocab_modulo: CountOrNone = 0,
    max_word_length: Count = 16,
) -> Corpus:
    """Load root/weibo/<split>.conll in the file's order.

    Characters, words and labels are numbered by first appearance in the training split; unknown
    characters share a row, and so do unknown words.

    Args:
        sha256: expected checksum per split, and of jieba's dict.txt as "lexicon".
        max_word_length: longer words are omitted; the lexicon has words of 2 to 16 characters, so
            that 1 omits all.

    Raises:
        DataError: for a missing or malformed file (with file:line), a wrong checksum, a label that
            is not in the training split, or if jieba is not installed.
    """
    read = make_part_reader(NAME, HOME, root, sha256)
    lexicon = load_jieba_lexicon(find_checksum(sha256, "lexicon"))
    text = read(split)
    sentences = read_sentences(text)
    train = sentences if split == "train" else read_sentences(read("train"))
    into = [lexicon.find_words(sentence.text, max_word_length) for sentence in train]
    tables = _build_tables(train, into, vocab_modulo)
    _check_labels(text, sentences, tables.classes)

    def build(index: int) -> Lattice:
        sentence = sentences[index]
        return tables.build_lattice(sentence, lexicon.find_words(sentence.text, max_word_length))

    return Corpus(
        name=NAME,
        split=split,
        instances=LazyInstances(len(sentences), build),
        sizes={
            "words": tables.words.size,
            "characters": tables.characters.size,
            "classes": START + 1 + len(tables.classes),
        },
        sha256=text.sha256,
        source=f"lattices over Weibo NER (Peng and Dredze, 2015) with the words of {lexicon.name}",
        instance_kind="lattice",
    )


def _build_tables(train: Sequence[LabelledText], into: Sequence[Words], modulo: int) -> LabelTables:
    """Build the tables, numbered by first appearance; classes of labels follow class START."""
    labels = dict.fromkeys(label for sentence in train for label in sentence.labels)
    return LabelTables(
        characters=build_vocabulary((c for s in train for c in s.characters), modulo),
        words=build_vocabulary((w for ends in into for end in ends for w in end), modulo),
        classes={label: START + 1 + index for index, label in enumerate(labels)},
    )


def _check_labels(
    text: CorpusPart, sentences: Sequence[LabelledText], known: Mapping[str, int]
) -> None:
    """Check that all labels occur in the training split."""
    for sentence in sentences:
        for index, label in enumerate(sentence.labels, sentence.first):
            if label not in known:
                reason = f"label {label!r} is not in the training split: expected one of"
                raise text.build_error(index, f"{reason} {', '.join(known)}")


def read_sentences(file: CorpusPart) -> list[LabelledText]:
    sentences: list[LabelledText] = []
    open_: list[tuple[str, str]] = []
    for index, line in enumerate([*file.lines, ""]):
        if line:
            match = LINE.fullmatch(line)
            if match is None:
                raise file.build_error(
                    index, f"expected a character, a tab and a label, got {line[:40]!r}"
                )
            open_.append((match[1], match[2]))
        elif open_:
            characters, labels = zip(*open_, strict=True)
            sentences.append(LabelledText(characters, labels, index - len(open_)))
            open_ = []
    if not sentences:
        raise DataError(f"{file.path} is empty: expected a character and its label per line")
    return sentences


def load_jieba_lexicon(sha256: str | None = None) -> Lexicon:
    """Return the dictionary of the installed jieba.

    Args:
        sha256: expected checksum; None accepts any.

    Raises:
        DataError: if jieba is not installed, or its file is missing or different.
    """
    lexicon = _read_lexicon()
    if sha256 not in (None, lexicon.sha256):
        raise DataError(
            f"the dictionary of {lexicon.name} has sha256 {lexicon.sha256}, expected {sha256}; run"
            " `pip install -c constraints.txt jieba`, or set dataset.options.sha256.lexicon=null"
        )
    return lexicon


@cache
def _read_lexicon() -> Lexicon:
    """Read the dictionary file, once per process."""
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        raise DataError(
            f"the lexicon's package {PACKAGE} is not installed; run"
            f" `pip install {PACKAGE}`, or choose dataset=weibo_lattice or lattice_synthetic"
        ) from None
    path = Path(str(package.locate_file(FILE)))
    try:
        content = read_regular(path)
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}); run `pip install --force-reinstall {PACKAGE}`"
        ) from None
    words = (line.partition(" ")[0] for line in decode_text(content, str(path)).split("\n"))
    return Lexicon(
        name=f"{PACKAGE} {package.version}",
        words=frozenset(word for word in words if len(word) > 1),
        sha256=hashlib.sha256(content).hexdigest(),
    )
