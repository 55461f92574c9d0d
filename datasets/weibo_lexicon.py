"""Lattices over Weibo NER sentences, their words from jieba's dictionary.

Sources: Peng and Dredze, EMNLP 2015, second release (He and Sun, 2016),
https://github.com/hltcoe/golden-horse, data/weiboNER_2nd_conll.*: 1350, 270 and 270 sentences;
construction: Zhang and Yang, ACL 2018: every word of the lexicon of two or more characters that a
sentence contains is an arc, whatever it overlaps.

Against the lattices of ED-Batch's release (weibo_lattice), on the training splits: 54.7 characters
a sentence (there 43.1); 0.307 words a character (0.541, from a lexicon of its own), so 1.31 arcs
into a state (1.54): 71.4 % of the states with one, 26.7 % with two and 1.9 % with more (51.9, 42.7
and 5.4 %); 89.2 % of the words have two characters and 0.06 % more than four (86.1 and 0.6 %). Both
have 18 classes: 17 labels, and class 0 for the state before the first character.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.reading.conll import Sentence, read_sentences
from datasets.reading.lazy import LazyInstances
from datasets.reading.lexicon import jieba_lexicon
from datasets.reading.vocabulary import Vocabulary, vocabulary_of
from harness.contracts.corpus import Corpus
from harness.contracts.home import Checksums, Files, checksum_of, read_checked
from harness.errors import ConfigError, DataError
from harness.values.arrays import int_array
from harness.values.instances import Lattice

NAME = "weibo_lexicon"
START = 0  # the class of the state before the first character
HOME = Files(
    url="https://raw.githubusercontent.com/hltcoe/golden-horse/master/data/"
    "weiboNER_2nd_conll.{name}",
    folder="weibo",
    suffix=".conll",
    n_bytes={"train": 536039, "dev": 105881, "test": 108767},
    note="the expected checksums are those of a copy and were not compared with this address; where"
    " they differ, dataset.options.sha256=null accepts the files",
)

Words = Sequence[Sequence[str]]  # for each character those that end with it, longest first


@dataclass(frozen=True, slots=True)
class Tables:
    """Numbers of what the training split has."""

    characters: Vocabulary
    words: Vocabulary
    classes: Mapping[str, int]

    def lattice(self, sentence: Sentence, into: Words) -> Lattice:
        """Build the lattice of a sentence; state i stands behind its character i - 1."""
        sources: list[int] = []
        tokens: list[int] = []
        for before, (character, ending) in enumerate(zip(sentence.characters, into, strict=True)):
            sources += [before, *(before + 1 - len(word) for word in ending)]
            tokens += [self.characters.row(character), *map(self.words.row, ending)]
        return Lattice(
            tags=int_array([START, *(self.classes[label] for label in sentence.labels)]),
            arc_start=int_array(np.cumsum([0, 0, *(1 + len(ending) for ending in into)])),
            sources=int_array(sources),
            tokens=int_array(tokens),
        )


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocab_modulo: int = 0,
    max_word_length: int = 16,
) -> Corpus:
    """Load root/weibo/<split>.conll in the file's order.

    Characters, words and labels are numbered as they appear in the training split; characters or
    words that it lacks share a row.

    sha256: expected checksum per split, and as "lexicon" that of jieba's dict.txt.
    vocab_modulo: see datasets.reading.vocabulary.
    max_word_length: longer words are left out; the lexicon has words of 2 to 16 characters.

    Raises DataError for a missing or malformed file (file:line), a wrong checksum, a label that the
    training split lacks, or where jieba is not installed.
    """
    if root is None:
        raise DataError(f"{NAME} needs a data_root; set BENCH_DATA to the folder that holds weibo/")
    if max_word_length < 1:
        raise ConfigError(
            f"max_word_length={max_word_length} is not allowed; give 1 (no words) or more"
        )
    lexicon = jieba_lexicon(checksum_of(sha256, "lexicon"))
    sentences, digest = _read(root, split, sha256)
    train = sentences if split == "train" else _read(root, "train", sha256)[0]
    into = [lexicon.words_into(sentence.text, max_word_length) for sentence in train]
    tables = _tables(train, into, vocab_modulo)
    _check_labels(HOME.path(root, split), sentences, tables.classes)

    def build(index: int) -> Lattice:
        sentence = sentences[index]
        return tables.lattice(sentence, lexicon.words_into(sentence.text, max_word_length))

    return Corpus(
        name=NAME,
        split=split,
        instances=LazyInstances(len(sentences), build),
        sizes={
            "words": tables.words.size,
            "characters": tables.characters.size,
            "classes": START + 1 + len(tables.classes),
        },
        synthetic=False,
        sha256=digest,
        source=f"lattices over Weibo NER (Peng and Dredze, 2015) with the words of {lexicon.name}",
        instance_kind="lattice",
    )


def _read(root: Path, split: str, sha256: Checksums) -> tuple[list[Sentence], str]:
    """Return the sentences of a split and the checksum of its file."""
    path = HOME.path(root, split)
    content, digest = read_checked(path, checksum_of(sha256, split), NAME)
    return read_sentences(content, str(path)), digest


def _tables(train: Sequence[Sentence], into: Sequence[Words], modulo: int) -> Tables:
    """Number all by first appearance, the labels behind that of the first state."""
    labels = dict.fromkeys(label for sentence in train for label in sentence.labels)
    return Tables(
        characters=vocabulary_of((c for s in train for c in s.characters), modulo),
        words=vocabulary_of((w for ends in into for end in ends for w in end), modulo),
        classes={label: START + 1 + index for index, label in enumerate(labels)},
    )


def _check_labels(path: Path, sentences: Sequence[Sentence], known: Mapping[str, int]) -> None:
    """Refuse a label that the training split lacks, with its line."""
    for sentence in sentences:
        for line, label in enumerate(sentence.labels, sentence.first_line):
            if label not in known:
                raise DataError(
                    f"{path}:{line}: label {label!r} is not in the training split, which has"
                    f" {', '.join(known)}"
                )
