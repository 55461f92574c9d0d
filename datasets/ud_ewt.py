"""Universal Dependencies, English Web Treebank: sentences with their dependency trees.

Source: Silveira et al., LREC 2014, https://github.com/UniversalDependencies/UD_English-EWT, release
2.16 (Neubig et al., NIPS 2017, used an early one). The development part has 2001 sentences with
25 147 words, the test part 2077 with 25 094; 17 parts of speech, 49 relations with their subtypes.

As in the parser of Kiperwasser and Goldberg, TACL 2016 (barchybrid/src/utils.py): words are lower
case, and NUM where they begin with a digit; parts of speech are UPOS; relations keep their
subtypes; sentences whose tree is not projective are left out; the root has a word and a part of
speech of its own. That parser draws anew in each pass which rare words it takes for unknown ones;
here only words are unknown that the vocabulary's part lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets.reading.conllu import Sentence, read_treebank
from datasets.reading.lazy import LazyInstances
from datasets.reading.parts import name_with, part_of, part_reader
from datasets.reading.vocabulary import Vocabulary, vocabulary_of
from harness.contracts.corpus import Corpus
from harness.contracts.home import Checksums, Files
from harness.errors import DataError
from harness.values.arrays import int_array
from harness.values.parsed import ParsedSentence, derive_transitions

NAME = "ud_ewt"
ROOT_WORD, ROOT_TAG, NUMBER = "*root*", "ROOT-POS", "NUM"
HOME = Files(
    url="https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/r2.16/"
    "en_ewt-ud-{name}.conllu",
    folder="ud_ewt",
    suffix=".conllu",
    n_bytes={"dev": 1805545, "test": 1804515},
    note="the expected checksums are those of a copy and were not compared with this address; where"
    " they differ, dataset.options.sha256=null accepts the files",
)


@dataclass(frozen=True, slots=True)
class Tables:
    """Numbers of what the vocabulary's part has; what it lacks shares one more of each."""

    words: Vocabulary
    tags: Vocabulary
    relations: Vocabulary
    subtypes: bool

    def parsed(self, sentence: Sentence) -> ParsedSentence:
        """Build the instance of a sentence, the root behind its words."""
        return ParsedSentence(
            words=int_array([self.words.row(word) for word in _words(sentence)]),
            tags=int_array([self.tags.row(tag) for tag in (*sentence.tags, ROOT_TAG)]),
            heads=int_array(sentence.heads),
            relations=int_array(
                [self.relations.row(relation) for relation in _relations(sentence, self.subtypes)]
            ),
        )


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocabulary: str = "train",
    subtypes: bool = True,
) -> Corpus:
    """Load root/ud_ewt/<split>.conllu in the file's order, without trees that are not projective.

    Words, parts of speech and relations are numbered as they appear in the vocabulary's part.

    sha256: expected checksum per part.
    vocabulary: the part that words are numbered by, see datasets.reading.parts.part_of.
    subtypes: whether nsubj:pass is another relation than nsubj.

    Raises DataError for a missing, empty or malformed file, an empty sentence, heads that make no
    tree (each with file:line), or a wrong checksum.
    """
    part = part_of(split, vocabulary)
    read = part_reader(NAME, HOME, root, sha256)
    text = read(part)
    sentences = read_treebank(text)
    projective = _projective(sentences)
    if not projective:
        raise DataError(f"{text.path} has no projective tree; a transition parser needs them")
    known = projective if part == vocabulary else _projective(read_treebank(read(vocabulary)))
    tables = _tables(known, subtypes)

    def build(index: int) -> ParsedSentence:
        return tables.parsed(projective[index])

    return Corpus(
        name=name_with(NAME, vocabulary),
        split=part,
        instances=LazyInstances(len(projective), build),
        sizes={
            "words": tables.words.size,
            "tags": tables.tags.size,
            "relations": tables.relations.size,
        },
        synthetic=False,
        sha256=text.sha256,
        source="Universal Dependencies English EWT 2.16 (Silveira et al., 2014)",
        instance_kind="parsed_sentence",
        skipped={"not projective": len(sentences) - len(projective)},
    )


def _projective(sentences: Iterable[Sentence]) -> list[Sentence]:
    return [sentence for sentence in sentences if derive_transitions(sentence.heads) is not None]


def _tables(known: Sequence[Sentence], subtypes: bool) -> Tables:
    return Tables(
        words=vocabulary_of(word for sentence in known for word in _words(sentence)),
        tags=vocabulary_of(tag for s in known for tag in (*s.tags, ROOT_TAG)),
        relations=vocabulary_of(r for s in known for r in _relations(s, subtypes)),
        subtypes=subtypes,
    )


def _words(sentence: Sentence) -> list[str]:
    """Words as the parser knows them, the root last."""
    return [*map(_normal, sentence.forms), ROOT_WORD]


def _normal(form: str) -> str:
    return NUMBER if "0" <= form[0] <= "9" else form.lower()


def _relations(sentence: Sentence, subtypes: bool) -> Sequence[str]:
    if subtypes:
        return sentence.relations
    return [relation.partition(":")[0] for relation in sentence.relations]
