"""IWSLT'15 English to Vietnamese: sentences and their translations.

Source: Cettolo et al., IWSLT 2015, prepared by Luong and Manning, IWSLT 2015,
https://nlp.stanford.edu/projects/nmt/. Each line is a sentence of words separated by spaces; its
translation is on the same line of the other file. The vocabularies have 17,191 and 7,709 words.
tst2012 is the development part (1,553 pairs; 4 to 95 English and 4 to 124 Vietnamese words,
including marks), tst2013 the test part (1,268 pairs, 4 to 104 and 4 to 125 words).

A file of the user's own has a pair per line, with a tab between the two sentences; its words are
numbered by first appearance.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from dynbatch.datasets.parts.reading import (
    CorpusPart,
    LazyInstances,
    PartReader,
    Vocabulary,
    format_corpus_name,
    make_part_reader,
    select_part,
)
from dynbatch.harness.contracts.corpus import Corpus, hash_arguments
from dynbatch.harness.contracts.home import Checksums, Home, Split
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.checked import CountOrNone
from dynbatch.harness.values.instances import SentencePair

NAME = "iwslt15"
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
MARKS = (BEGIN, END, "|||")  # the last one separates sides that are on one line
STEMS = {"train": "train", "dev": "tst2012", "test": "tst2013"}
SIDES = ("en", "vi")
SKIP_THEM = ", or set dataset.options.empty_train_pairs=skip"
HOME = Home(
    url="https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/{name}",
    folder="iwslt15",
    suffix=None,
    names={f"{s}_{side}": f"{s}.{side}" for s in (*STEMS.values(), "vocab") for side in SIDES},
    n_bytes={
        **{"tst2012_en": 140250, "tst2012_vi": 188396, "tst2013_en": 132264, "tst2013_vi": 183855},
        **{"vocab_en": 139741, "vocab_vi": 46767},
    },
    note="the expected checksums are from a copy, not from this address; if they differ, set"
    " dataset.options.sha256=null",
)


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocab_modulo: CountOrNone = 0,
    vocabulary: Split = "train",
    empty_train_pairs: Literal["refuse", "skip"] = "refuse",
    path: str | None = None,
) -> Corpus:
    """Load root/iwslt15/<train|tst2012|tst2013>.{en,vi}; both sides of a pair are `<s> ... </s>`.

    Words are numbered by their lines in vocab.{en,vi} for every split; all others are <unk>.

    Args:
        sha256: expected checksum per file; its key for train.en is train_en.
        vocab_modulo: 0 keeps the ids; otherwise ids are taken modulo it, as in ED-Batch's release
            with 256.
        vocabulary: part that is read as the training split. Words are always those of vocab.*.
        empty_train_pairs: "skip" omits pairs of the training file with an empty side and counts
            them in Corpus.skipped; "refuse" is an error. In other parts they are always an error.

    Raises:
        DataError: for a missing, empty or malformed file, an empty sentence (with file:line), files
            of different numbers of lines, or a wrong checksum.
    """
    part = select_part(split, vocabulary)
    read = make_part_reader(NAME, HOME, root, sha256, path)
    sides, files, sha256_of_all = _read_files(read, part, is_own=path is not None)
    vocabularies = [_build_vocabulary(file, vocab_modulo) for file in files]
    is_train = part == "train"
    advice = f"; add words{SKIP_THEM if is_train and path is None else ''}"
    skip = is_train and empty_train_pairs == "skip"
    kept = _find_full_pairs(*sides, advice=None if skip else advice)

    def build(index: int) -> SentencePair:
        lines = (side.lines[kept[index]].split() for side in sides)
        return SentencePair(
            *(
                as_int_array([*map(known.find_row, (BEGIN, *words, END))])
                for words, known in zip(lines, vocabularies, strict=True)
            )
        )

    return Corpus(
        name=format_corpus_name(NAME, vocabulary),
        split=part,
        instances=LazyInstances(len(kept), build),
        sizes={"source_words": vocabularies[0].size, "target_words": vocabularies[1].size},
        sha256=sha256_of_all,
        source="IWSLT'15 English-Vietnamese, as prepared by Luong and Manning (2015)",
        instance_kind="sentence_pair",
        skipped={"with an empty side": max(len(side.lines) for side in sides) - len(kept)},
    )


def _read_files(
    read: PartReader, part: str, *, is_own: bool
) -> tuple[list[CorpusPart], list[CorpusPart], str]:
    """Read both sides and their vocabularies; return them with a checksum of all.

    Args:
        is_own: whether one file of the user's own has both sides, and thus the vocabularies.
    """
    if is_own:
        sides = _split_sides(read(part))
        texts = (" ".join(side.lines).split() for side in sides)
        words = [list(dict.fromkeys((UNKNOWN, BEGIN, END, *text))) for text in texts]
        known = [replace(side, lines=lines) for side, lines in zip(sides, words, strict=True)]
        return sides, known, read(part).sha256
    sides = [read(f"{STEMS[part]}_{side}") for side in SIDES]
    files = [read(f"vocab_{side}") for side in SIDES]
    return sides, files, hash_arguments(files=[file.sha256 for file in (*sides, *files)])


def _split_sides(text: CorpusPart) -> list[CorpusPart]:
    """Split a file with a pair per line."""
    pairs = []
    for index, line in enumerate(text.lines):
        pairs.append(line.split("\t"))
        if len(pairs[-1]) != 2:
            raise text.build_error(
                index, f"expected a sentence, a tab and its translation, got {line[:40]!r}"
            )
    return [replace(text, lines=list(lines), n_blank=0) for lines in zip(*pairs, strict=True)]


def _build_vocabulary(file: CorpusPart, modulo: int) -> Vocabulary:
    """Build the vocabulary of words numbered by their lines."""
    numbers: dict[str, int] = {}
    for index, word in enumerate(file.lines):
        if not word or len(word.split()) != 1:
            raise file.build_error(index, f"expected one word, got {word[:40]!r}; fix the line")
        if word in numbers:
            raise file.build_error(
                index, f"repeats {word!r} of line {numbers[word] + 1}; remove it"
            )
        numbers[word] = index
    for mark in (UNKNOWN, BEGIN, END):
        if mark not in numbers:
            raise DataError(
                f"{file.path} has no {mark}: expected {UNKNOWN}, {BEGIN} and {END}; add it"
            )
    rows = {word: number % modulo if modulo else number for word, number in numbers.items()}
    return Vocabulary(rows, rows[UNKNOWN], modulo or len(rows))


def _find_full_pairs(source: CorpusPart, target: CorpusPart, *, advice: str | None) -> list[int]:
    """Return the indices of lines whose sides are both filled.

    Args:
        advice: end of the error message for an empty side; None omits such pairs.

    Raises:
        DataError: for files of different numbers of lines, a mark within a sentence, or an empty
            side.
    """
    n_lines = [len(side.lines) for side in (source, target)]
    n_pairs = max(n_lines)
    # A blank line at the end of one file may be the empty side of a pair.
    if any(len(side.lines) + side.n_blank < n_pairs for side in (source, target)):
        raise DataError(
            f"{source.path} has {n_lines[0]} lines: expected {n_lines[1]}, as in {target.path}; put"
            " each translation on the line of its sentence"
        )
    empty = set()
    for side in (source, target):
        for index, line in enumerate([*side.lines, *[""] * (n_pairs - len(side.lines))]):
            words = line.split()
            if not words:
                empty.add(index)
                if advice is not None:
                    raise side.build_error(index, f"the sentence is empty{advice}")
            for mark in MARKS:
                if mark in words:
                    raise side.build_error(
                        index, f"the word {mark} is reserved for the loader; remove it"
                    )
    return [index for index in range(n_pairs) if index not in empty]
