"""Reader of dependency treebanks in CoNLL-U: a word a line, ten columns, sentences apart.

Only what the basic tree needs is read: ID, FORM, UPOS, HEAD and DEPREL. Lines of multiword tokens
(1-2) and empty nodes (8.1), which are no words of that tree, and comments are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from datasets.reading.parts import Part
from harness.values.parsed import is_tree

N_COLUMNS = 10
MAX_DIGITS = 9  # of a head
ID, FORM, UPOS, HEAD, DEPREL = 0, 1, 3, 6, 7
NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and its tree; head n, behind all words, is the root."""

    forms: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    first_line: int


def read_treebank(file: Part) -> list[Sentence]:
    """Parse a treebank.

    Raises DataError with file, line and reason where a line is not in the format, a sentence has no
    words, or its heads make no tree with one root.
    """
    return [_sentence(file, start, end) for start, end in _blocks(file)]


def _blocks(file: Part) -> Iterator[tuple[int, int]]:
    """Yield where each sentence begins and ends; a blank line, at the file's end or not, ends it.

    Raises DataError for a blank line that ends none.
    """
    start = 0
    for index, line in enumerate(file.lines):
        if not line.strip():
            if index == start:
                raise file.fault(index, "the sentence is empty; one blank line ends a sentence")
            yield start, index
            start = index + 1
    if start < len(file.lines):
        yield start, len(file.lines)


def _sentence(file: Part, start: int, end: int) -> Sentence:
    words: list[list[str]] = []
    places: list[int] = []
    for index in range(start, end):
        line = file.lines[index]
        if line.startswith("#"):
            continue
        columns = line.split("\t")
        if NO_WORD.fullmatch(columns[ID]):
            continue
        reason = _why_not_a_word(columns, len(words) + 1)
        if reason is not None:
            raise file.fault(index, reason)
        words.append(columns)
        places.append(index)
    if not words:
        raise file.fault(start, "the sentence is empty; it has comments, but no words")
    numbered = zip(places, words, strict=True)
    heads = tuple(_head(file, place, columns, len(words)) for place, columns in numbered)
    _check_tree(file, places, heads)
    forms, tags, relations = zip(*((w[FORM], w[UPOS], w[DEPREL]) for w in words), strict=True)
    return Sentence(forms, tags, heads, relations, places[0])


def _check_tree(file: Part, places: Sequence[int], heads: Sequence[int]) -> None:
    """Raise DataError where heads make no tree, or one with several roots."""
    if not is_tree(heads):
        raise file.fault(places[0], "the heads of the sentence make no tree; they run in a circle")
    roots = [place for place, head in zip(places, heads, strict=True) if head == len(heads)]
    if len(roots) > 1:
        raise file.fault(
            roots[1], f"HEAD is 0 for {len(roots)} words of the sentence; a tree has one root"
        )


def _why_not_a_word(columns: list[str], number: int) -> str | None:
    if len(columns) != N_COLUMNS:
        return f"{len(columns)} columns between tabs; a word of CoNLL-U has {N_COLUMNS}"
    if columns[ID] != str(number):
        return f"the word's ID is {columns[ID]!r}, expected {number}; words count from 1"
    for name, column in (("FORM", FORM), ("UPOS", UPOS), ("DEPREL", DEPREL)):
        if not columns[column].strip() or (columns[column] == "_" and column != FORM):
            return f"the word has no {name}; a treebank needs it"
    return None


def _head(file: Part, index: int, columns: list[str], n_words: int) -> int:
    """Return the head as the place of a word, the root's behind the last."""
    text = columns[HEAD]
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    if not is_number or int(text) > n_words:
        raise file.fault(
            index,
            f"HEAD is {text[:40]!r}; it must be the ID of a word, 1 to {n_words}, or 0 for the"
            " root",
        )
    return int(text) - 1 if int(text) else n_words
