"""UD English EWT: trees for a transition parser; on made-up sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError, DataError
from harness.values.parsed import SHIFT
from tests.support.corpora import options_of
from tests.support.sentence_files import CROSSED, DOGS_BARK, TWO_OF_12, UD, load, word, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "ud_ewt", UD, ".conllu")
    return tmp_path


def test_trees_are_read_and_what_is_not_projective_is_counted(root: Path) -> None:
    corpus = load("ud_ewt", root)
    assert (corpus.name, corpus.instance_kind) == ("ud_ewt", "parsed_sentence")
    assert len(corpus.instances) == 2
    assert corpus.skipped == {"not projective": 1}
    dogs, twelve = corpus.instances
    assert dogs.heads.tolist() == [3, 3, 3, 4]  # without the token don't and the empty node
    assert dogs.relations.tolist() == [0, 1, 2, 3]
    assert twelve.heads.tolist() == [1, 2]


def test_words_are_lower_case_and_numbers_one_word(root: Path) -> None:
    corpus = load("ud_ewt", root)
    dogs, twelve = corpus.instances
    # dogs, do, n't, bark and the root, then NUM; the crossed sentence is no part of it.
    assert dogs.words.tolist() == [0, 1, 2, 3, 4]
    assert twelve.words.tolist() == [5, 0, 4]
    assert dogs.tags.tolist() == [0, 1, 2, 3, 4]
    assert twelve.tags.tolist() == [5, 0, 4]
    assert corpus.sizes == {"words": 7, "tags": 7, "relations": 6}


def test_what_the_training_part_lacks_shares_a_row(root: Path) -> None:
    lines = [word("1", "Cats", "NOUN", "2", "nsubj"), word("2", "purr", "ADJ", "0", "root")]
    write(root / "ud_ewt", {"dev": "\n".join(lines)}, ".conllu")
    corpus = load("ud_ewt", root, "dev")
    (cats,) = corpus.instances
    assert cats.words.tolist() == [6, 6, 4]
    assert cats.tags.tolist() == [0, 6, 4]
    assert cats.relations.tolist() == [5, 3]


def test_relations_may_lose_their_subtypes(root: Path) -> None:
    lines = [word("1", "a", "X", "2", "nsubj"), word("2", "b", "X", "0", "root")]
    write(root / "ud_ewt", {"train": DOGS_BARK + "\n\n" + "\n".join(lines)}, ".conllu")
    assert load("ud_ewt", root).size("relations") == 6
    assert load("ud_ewt", root, subtypes=False).size("relations") == 5
    with pytest.raises(ConfigError, match="subtypes=1 is not allowed; give true or false"):
        load("ud_ewt", root, subtypes=1)


def test_another_part_takes_the_training_part_s_place(root: Path) -> None:
    (root / "ud_ewt" / "train.conllu").unlink()
    corpus = load("ud_ewt", root, vocabulary="dev")
    assert (corpus.name, corpus.split, corpus.size("words")) == ("ud_ewt_dev", "dev", 4)


def test_the_transitions_lead_to_the_tree(root: Path) -> None:
    dogs = load("ud_ewt", root).instances[0]
    assert dogs.n_transitions == 8
    assert (dogs.kinds == SHIFT).sum() == 4


GOOD = [word("1", "a", "X", "2", "dep"), word("2", "b", "X", "0", "root")]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([GOOD[0], "2\tb\tX"], ":4: 3 columns between tabs; a word of CoNLL-U has 10"),
        ([GOOD[0], GOOD[1].replace("\t", " ")], ":4: 1 columns between tabs"),
        ([GOOD[0], word("3", "b", "X", "0", "root")], ":4: the word's ID is '3', expected 2"),
        ([word("0", "a", "X", "0", "root")], ":3: the word's ID is '0', expected 1"),
        ([word("1", "a", "X", "x", "root")], ":3: HEAD is 'x'; it must be the ID of a word, 1 to"),
        ([word("1", "a", "X", "_", "root")], ":3: HEAD is '_'"),
        ([word("1", "a", "X", "-1", "root")], ":3: HEAD is '-1'"),
        ([GOOD[0], word("2", "b", "X", "3", "root")], ":4: HEAD is '3'"),
        ([word("1", "a", "_", "0", "root")], ":3: the word has no UPOS; a treebank needs it"),
        ([word("1", "a", "X", "0", "_")], ":3: the word has no DEPREL"),
        ([word("1", "", "X", "0", "root")], ":3: the word has no FORM"),
        (["# only a comment"], ":3: the sentence is empty; it has comments, but no words"),
        ([GOOD[0], word("2", "b", "X", "1", "dep")], ":3: the heads of the sentence make no tree"),
        ([word("1", "a", "X", "1", "dep")], ":3: the heads of the sentence make no tree"),
        ([word("1", "a", "X", "9" * 5000, "root")], ":3: HEAD is '9999999999"),
        ([word("1", "a", "X", "0" * 5000, "root")], ":3: HEAD is '0000000000"),
        (
            [*GOOD, word("3", "c", "X", "0", "root")],
            ":5: HEAD is 0 for 2 words of the sentence; a tree has one root",
        ),
        (["", GOOD[0]], ":3: the sentence is empty; one blank line ends a sentence"),
        ([*GOOD, "", ""], ":6: the sentence is empty"),
        ([*GOOD, "", " ", *GOOD], ":6: the sentence is empty"),
    ],
)
@pytest.mark.parametrize("part", ["train", "dev"])
def test_a_malformed_line_is_named(root: Path, part: str, lines: list[str], reason: str) -> None:
    good = word("1", "a", "X", "0", "root")
    write(root / "ud_ewt", {part: "\n".join([good, "", *lines]) + "\n"}, ".conllu")
    with pytest.raises(DataError) as caught:
        load("ud_ewt", root, part)
    assert f"ud_ewt/{part}.conllu{reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n \n", "\r\n\r\n"])
def test_the_last_sentence_may_end_with_the_file(root: Path, end: str) -> None:
    write(root / "ud_ewt", {"train": f"{TWO_OF_12}\n\n{TWO_OF_12}{end}"}, ".conllu")
    assert len(load("ud_ewt", root).instances) == 2


def test_a_blank_line_in_front_is_an_empty_sentence(root: Path) -> None:
    write(root / "ud_ewt", {"train": f"\n{TWO_OF_12}\n"}, ".conllu")
    with pytest.raises(DataError, match=r"train\.conllu:1: the sentence is empty"):
        load("ud_ewt", root)


def test_a_wrong_encoding_is_named(root: Path) -> None:
    content = (TWO_OF_12 + "\n\n" + TWO_OF_12).replace("DOGS", "D\xd6GS").encode("latin-1")
    write(root / "ud_ewt", {"train": content}, ".conllu")
    with pytest.raises(DataError, match=r"train\.conllu:2: not UTF-8 text"):
        load("ud_ewt", root)


def test_a_file_without_any_projective_tree_is_refused(root: Path) -> None:
    write(root / "ud_ewt", {"train": CROSSED}, ".conllu")
    with pytest.raises(DataError, match=r"train\.conllu has no projective tree; a transition"):
        load("ud_ewt", root)


def test_an_underscore_is_a_word(root: Path) -> None:
    write(root / "ud_ewt", {"train": word("1", "_", "SYM", "0", "root")}, ".conllu")
    assert len(load("ud_ewt", root).instances) == 1


def test_the_real_parts_have_the_shape_that_is_told(data_root: Path) -> None:
    if not (data_root / "ud_ewt").is_dir():
        pytest.skip(f"{data_root} has no ud_ewt/")
    corpus = load("ud_ewt", data_root, **options_of("ud_ewt_dev"))
    assert len(corpus.instances[:]) == 1970
    assert corpus.skipped == {"not projective": 31}
    assert corpus.sizes == {"words": 4534, "tags": 19, "relations": 50}
