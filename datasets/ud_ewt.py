"""Universal Dependencies, English Web Treebank: sentences with their dependency trees.

Source: Silveira et al., LREC 2014, https://github.com/UniversalDependencies/UD_English-EWT, release
2.16 (Neubig et al., NIPS 2017, used an early one). The development part has 2,001 sentences with
25,147 words, the test part 2,077 with 25,094; 17 parts of speech, 49 relations with subtypes.

Preprocessing follows the parser of Kiperwasser and Goldberg, TACL 2016 (barchybrid/src/utils.py):
words are lower case, or NUM if they start with a digit; parts of speech are UPOS; relations keep
their subtypes; sentences with nonprojective trees are omitted; the root has its own word and part
of speech. That parser draws in each pass which rare words it treats as unknown; here, only words
that are not in the vocabulary's part are unknown.

CoNLL-U has a word per line in ten columns. Only the columns of the basic tree are read: ID, FORM,
UPOS, HEAD and DEPREL. Comments are skipped, as are multiword tokens (1-2) and empty nodes (8.1),
which are not words of that tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.parsed import ParsedSentence, derive_transitions, is_tree

NAME = "ud_ewt"
ROOT_WORD, ROOT_TAG, NUMBER = "*root*", "ROOT-POS", "NUM"
HOME = Home(
    url="https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/r2.16/"
    "en_ewt-ud-{name}.conllu",
    folder="ud_ewt",
    suffix=".conllu",
    n_bytes={"dev": 1805545, "test": 1804515},
    note="the expected checksums are from a copy, not from this address; if they differ, set"
    " dataset.options.sha256=null",
)
N_COLUMNS = 10
MAX_DIGITS = 9  # of a head
ID, FORM, UPOS, HEAD, DEPREL = 0, 1, 3, 6, 7
NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")


@dataclass(frozen=True, slots=True)
class ParsedText:
    """A sentence and its tree.

    Attributes:
        heads: index of the head of each word; n, the number of words, is the root.
        first_line: index of the line of the first word.
    """

    forms: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    first_line: int


@dataclass(frozen=True, slots=True)
class WordTables:
    """Rows of words, parts of speech and relations; unknown ones of each kind share a row.

    Attributes:
        subtypes: True if subtypes of relations have rows of their own.
    """

    words: Vocabulary
    tags: Vocabulary
    relations: Vocabulary
    subtypes: bool

    def build_sentence(self, sentence: ParsedText) -> ParsedSentence:
        """Build the instance of a sentence, with the root after its words."""
        return ParsedSentence(
            words=as_int_array([self.words.find_row(word) for word in _normalize_words(sentence)]),
            tags=as_int_array([self.tags.find_row(tag) for tag in (*sentence.tags, ROOT_TAG)]),
            heads=as_int_array(sentence.heads),
            relations=as_int_array(
                [
                    self.relations.find_row(relation)
                    for relation in _list_relations(sentence, self.subtypes)
                ]
            ),
        )


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocabulary: Split = "train",
    subtypes: bool = True,
    path: str | None = None,
) -> Corpus:
    """Load root/ud_ewt/<split>.conllu in the file's order, without nonprojective trees.

    Words, parts of speech and relations are numbered by first appearance in the vocabulary's part.

    Args:
        subtypes: True if nsubj:pass and nsubj are different relations.

    Raises:
        DataError: for a missing, empty or malformed file, an empty sentence, heads that are not a
            tree (each with file:line), or a wrong checksum.
    """
    part = select_part(split, vocabulary)
    read = make_part_reader(NAME, HOME, root, sha256, path)
    text = read(part)
    sentences = read_treebank(text)
    projective = _select_projective(sentences)
    if not projective:
        raise DataError(
            f"{text.path} has no projective tree, which a transition parser needs; choose another"
            " file"
        )
    known = (
        projective if part == vocabulary else _select_projective(read_treebank(read(vocabulary)))
    )
    tables = _build_tables(known, subtypes)

    def build(index: int) -> ParsedSentence:
        return tables.build_sentence(projective[index])

    return Corpus(
        name=format_corpus_name(NAME, vocabulary),
        split=part,
        instances=LazyInstances(len(projective), build),
        sizes={
            "words": tables.words.size,
            "tags": tables.tags.size,
            "relations": tables.relations.size,
        },
        sha256=text.sha256,
        source="Universal Dependencies English EWT 2.16 (Silveira et al., 2014)",
        instance_kind="parsed_sentence",
        skipped={"not projective": len(sentences) - len(projective)},
    )


def _select_projective(sentences: Iterable[ParsedText]) -> list[ParsedText]:
    return [sentence for sentence in sentences if derive_transitions(sentence.heads) is not None]


def _build_tables(known: Sequence[ParsedText], subtypes: bool) -> WordTables:
    return WordTables(
        words=build_vocabulary(word for sentence in known for word in _normalize_words(sentence)),
        tags=build_vocabulary(tag for s in known for tag in (*s.tags, ROOT_TAG)),
        relations=build_vocabulary(r for s in known for r in _list_relations(s, subtypes)),
        subtypes=subtypes,
    )


def _normalize_words(sentence: ParsedText) -> list[str]:
    """Return the normalized words, with the root last."""
    forms = (NUMBER if "0" <= form[0] <= "9" else form.lower() for form in sentence.forms)
    return [*forms, ROOT_WORD]


def _list_relations(sentence: ParsedText, subtypes: bool) -> Sequence[str]:
    if subtypes:
        return sentence.relations
    return [relation.partition(":")[0] for relation in sentence.relations]


def read_treebank(file: CorpusPart) -> list[ParsedText]:
    """Parse a treebank.

    Raises:
        DataError: for a malformed line, a sentence without words, or heads that are not a tree with
            one root; with file, line and reason.
    """
    return [_parse_sentence(file, start, end) for start, end in find_blocks(file.lines)]


def _parse_sentence(file: CorpusPart, start: int, end: int) -> ParsedText:
    rows: list[list[str]] = []
    places: list[int] = []
    for index in range(start, end):
        line = file.lines[index]
        if line.startswith("#"):
            continue
        columns = line.split("\t")
        if NO_WORD.fullmatch(columns[ID]):
            continue
        reason = _explain_invalid_word(columns, len(rows) + 1)
        if reason is not None:
            raise file.build_error(index, reason)
        rows.append(columns)
        places.append(index)
    if not rows:
        raise file.build_error(start, "the sentence is empty: expected words, got only comments")
    numbered = zip(places, rows, strict=True)
    heads = tuple(_parse_head(file, position, columns, len(rows)) for position, columns in numbered)
    _check_tree(file, places, heads)
    forms, tags, relations = zip(*((w[FORM], w[UPOS], w[DEPREL]) for w in rows), strict=True)
    return ParsedText(forms, tags, heads, relations, places[0])


def _check_tree(file: CorpusPart, places: Sequence[int], heads: Sequence[int]) -> None:
    """Check that heads are a tree with one root."""
    if not is_tree(heads):
        raise file.build_error(places[0], "the heads of the sentence form a cycle: expected a tree")
    roots = [index for index, head in zip(places, heads, strict=True) if head == len(heads)]
    if len(roots) > 1:
        raise file.build_error(
            roots[1], f"HEAD is 0 for {len(roots)} words: expected one root per sentence"
        )


def _explain_invalid_word(columns: list[str], number: int) -> str | None:
    if len(columns) != N_COLUMNS:
        return f"expected {N_COLUMNS} tab-separated columns (CoNLL-U), got {len(columns)}"
    if columns[ID] != str(number):
        return f"invalid ID: expected {number}, got {columns[ID]!r}; number words from 1"
    for name, column in (("FORM", FORM), ("UPOS", UPOS), ("DEPREL", DEPREL)):
        if not columns[column].strip() or (columns[column] == "_" and column != FORM):
            return f"the word has no {name}; add it"
    return None


def _parse_head(file: CorpusPart, index: int, columns: list[str], n_words: int) -> int:
    """Return the head as the index of a word; `n_words` for the root."""
    text = columns[HEAD]
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    if not is_number or int(text) > n_words:
        raise file.build_error(
            index,
            f"invalid HEAD: expected 0 (root) or a word's ID up to {n_words}, got {text[:40]!r}",
        )
    return int(text) - 1 if int(text) else n_words
