"""WikiNER English: words tagged with the kind of named entity that they belong to, or O.

Source: Nothman et al., Artificial Intelligence 194, 2013; the split, with one sentence per line as
`word|tag word|tag`, is that of dynet-benchmark (Neubig et al., NIPS 2017), which has no test part.
The development part has 1,696 sentences and 39,007 words, 1 to 144 per sentence, 8,504 distinct
words with 155 letters, and 5 tags; 28.9% of its words occur fewer than five times.

Rare words, which occur fewer than rare_below times in the vocabulary's part, are spelled out letter
by letter, with a padding letter on both sides. Neubig et al. specify "frequency < 5", as does
ED-Batch's release (rare_below=5); dynet-benchmark's program spells words of up to five occurrences
(rare_below=6). Letters are code points, as in dynet-benchmark's Python program; its C++ program
spells bytes.

A file of the user's own is in CoNLL format: a word per line in columns, separated by tabs or
spaces; the first column is the word, the last one its tag, and a blank line ends a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.reading import (
    CorpusPart,
    LazyInstances,
    Vocabulary,
    build_vocabulary,
    find_blocks,
    format_corpus_name,
    make_part_reader,
    select_part,
)
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.home import Checksums, Home, Split
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.checked import CountOrNone
from dynbatch.harness.values.instances import Chain

NAME = "wikiner"
PAD = ""  # padding letter before the first and after the last letter
HOME = Home(
    url="https://raw.githubusercontent.com/neulab/dynet-benchmark/master/data/tags/{name}.txt",
    folder="wikiner",
    names={"train": "train", "dev": "dev"},
    n_bytes={"dev": 314804},
    note="the expected checksums are from a copy, not from this address; if they differ, set"
    " dataset.options.sha256=null",
)

Pairs = list[tuple[str, str]]  # words of a sentence with their tags


@dataclass(frozen=True, slots=True)
class SpellingTables:
    """Rows of words and letters, and classes of tags, of the vocabulary's part.

    Attributes:
        frequent: words that are not spelled out.
    """

    words: Vocabulary
    letters: Vocabulary
    classes: Mapping[str, int]
    frequent: frozenset[str]

    def build_chain(self, sentence: Pairs) -> Chain:
        """Build the instance of a sentence; unknown words are spelled out as rare ones."""
        spelled = [[] if word in self.frequent else self._spell(word) for word, _ in sentence]
        return Chain(
            words=as_int_array([self.words.find_row(word) for word, _ in sentence]),
            labels=as_int_array([self.classes[tag] for _, tag in sentence]),
            char_start=as_int_array(np.cumsum([0, *map(len, spelled)])),
            characters=as_int_array([letter for letters in spelled for letter in letters]),
        )

    def _spell(self, word: str) -> list[int]:
        return [self.letters.find_row(letter) for letter in (PAD, *word, PAD)]


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocabulary: Split = "train",
    rare_below: CountOrNone = 5,
    path: str | None = None,
) -> Corpus:
    """Load root/wikiner/<split>.txt in the file's order.

    Words, letters and tags are numbered by first appearance in the vocabulary's part. Each of its
    words has a row, including rare ones; unknown words share a row, and so do unknown letters.

    Args:
        rare_below: words that occur fewer times in that part are spelled out; with 0 only unknown
            words are.

    Raises:
        DataError: for a missing, empty or malformed file, an empty sentence, an unknown tag (each
            with file:line), or a wrong checksum.
    """
    part = select_part(split, vocabulary)
    read = make_part_reader(NAME, HOME, root, sha256, path)
    text = read(part)
    known = text if part == vocabulary else read(vocabulary)
    sentences = None if path is None else _read_columns(text)
    counts = _count_pairs(known) if sentences is None else Counter(chain(*sentences))
    tables = _build_tables(counts, rare_below)
    if known is not text:
        _check_tags(text, tables.classes)

    def build(index: int) -> Chain:
        return tables.build_chain(
            _parse_pairs(text.lines[index]) if sentences is None else sentences[index]
        )

    return Corpus(
        name=format_corpus_name(NAME, vocabulary),
        split=part,
        instances=LazyInstances(len(text.lines if sentences is None else sentences), build),
        sizes={
            "words": tables.words.size,
            "characters": tables.letters.size,
            "classes": len(tables.classes),
        },
        sha256=text.sha256,
        source="WikiNER English (Nothman et al., 2013), as in dynet-benchmark",
        instance_kind="chain",
        label_names=() if path is None else list(tables.classes),
    )


def _read_columns(text: CorpusPart) -> list[Pairs]:
    """Return the words of each sentence of a CoNLL file with their tags."""
    sentences: list[Pairs] = []
    n_columns = 0
    for start, end in find_blocks(text.lines):
        sentences.append([])
        for index in range(start, end):
            line = text.lines[index]
            columns = line.split("\t") if "\t" in line else [*filter(None, line.split(" "))]
            n_columns = n_columns or len(columns)
            if n_columns < 2 or len(columns) != n_columns or not columns[0] or not columns[-1]:
                wanted = f"{n_columns} columns as before" if n_columns > 1 else "columns"
                raise text.build_error(
                    index,
                    f"expected {wanted}, a word first and its tag last, got {line[:40]!r};"
                    " separate them by tabs or spaces",
                )
            sentences[-1].append((columns[0], columns[-1]))
    return sentences


def _parse_pairs(line: str) -> Pairs:
    """Return the words of a well-formed line with their tags; words may contain "|"."""
    return [(word, tag) for word, _, tag in (token.rpartition("|") for token in line.split(" "))]


def _count_pairs(text: CorpusPart) -> Counter[tuple[str, str]]:
    """Count pairs of a word and its tag, in order of first appearance."""
    text.check_no_empty_lines("expected at least one word|tag")
    if all(token.count("|") > 1 for token in " ".join(text.lines).split()):
        first = text.lines[0].split()[0]
        raise text.build_error(
            0,
            f"expected word|tag, got {first[:40]!r} and no other form; remove the parts of speech",
        )
    tokens = Counter(token for line in text.lines for token in line.split(" "))
    counts: Counter[tuple[str, str]] = Counter()
    for token, count in tokens.items():
        word, _, tag = token.rpartition("|")
        if not word or not tag or "\t" in token:
            index = _find_line(text.lines, token)
            raise text.build_error(
                index, f"expected word|tag, got {token[:40]!r}; separate them by one space"
            )
        counts[word, tag] += count
    return counts


def _find_line(lines: Sequence[str], token: str) -> int:
    return next(index for index, line in enumerate(lines) if token in line.split(" "))


def _build_tables(counts: Counter[tuple[str, str]], rare_below: int) -> SpellingTables:
    per_word: Counter[str] = Counter()
    for (word, _), count in counts.items():
        per_word[word] += count
    tags = dict.fromkeys(tag for _, tag in counts)
    return SpellingTables(
        words=build_vocabulary(per_word),
        letters=build_vocabulary([PAD, *(letter for word in per_word for letter in word)]),
        classes={tag: index for index, tag in enumerate(tags)},
        frequent=frozenset(word for word, count in per_word.items() if count >= rare_below),
    )


def _check_tags(text: CorpusPart, known: Mapping[str, int]) -> None:
    """Check that all lines are well formed and have known tags."""
    for word, tag in _count_pairs(text):
        if tag not in known:
            index = _find_line(text.lines, f"{word}|{tag}")
            raise text.build_error(
                index,
                f"tag {tag!r} is not in the vocabulary: expected one of {', '.join(known)}",
            )
