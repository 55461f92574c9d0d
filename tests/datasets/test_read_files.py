"""Trees, sentences, pairs and parsed sentences, read from made-up files and from the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynbatch.datasets.parts.reading import LazyInstances, build_vocabulary
from dynbatch.datasets.sst import CLASSES, list_words, parse_tree
from dynbatch.harness.commands.data import describe_corpus
from dynbatch.harness.contracts.corpus import hash_inputs
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.instances import Chain, Tree
from dynbatch.harness.values.parsed import SHIFT
from tests.support.corpora import (
    CROSSED,
    DOGS_BARK,
    IWSLT,
    PTB,
    TINY,
    load,
    load_shipped,
    sha256,
    word,
    write,
    write_corpus,
)

NESTED = st.recursive(
    st.tuples(
        st.integers(0, 4),
        st.text(st.characters(exclude_characters=" \t\n\r()\\", codec="utf-8"), min_size=1),
    ),
    lambda subtree: st.tuples(st.integers(0, 4), subtree, subtree),
    max_leaves=30,
)


def to_text(nested: Any) -> str:
    """Write nested tuples as an S-expression."""
    label, *rest = nested
    if isinstance(rest[0], str):
        return f"({label} {rest[0].replace('/', chr(92) + '/').replace('*', chr(92) + '*')})"
    return f"({label} {to_text(rest[0])} {to_text(rest[1])})"


def from_tree(tree: Tree, words: list[str], vertex: int) -> Any:
    """Convert a tree back to nested tuples."""
    label = int(tree.labels[vertex])
    if tree.left[vertex] < 0:
        return (label, words[tree.words[vertex]])
    return (label, *(from_tree(tree, words, int(c[vertex])) for c in (tree.left, tree.right)))


def leaves_of(nested: Any) -> Iterator[str]:
    """Yield words from left to right."""
    if isinstance(nested[1], str):
        yield nested[1]
    else:
        for subtree in nested[1:]:
            yield from leaves_of(subtree)


@given(NESTED)
@example((2, (1, "1/2"), (2, "**")))  # written with escapes
def test_a_written_tree_is_read_back(nested: Any) -> None:
    words = list(dict.fromkeys(leaves_of(nested)))
    text = to_text(nested)
    tree = parse_tree(text, build_vocabulary(words), CLASSES)
    assert from_tree(tree, words, tree.n_vertices - 1) == nested
    assert list_words(text) == words


def test_a_very_deep_tree_is_read() -> None:
    depth = 5000
    text = "(2 (1 a) " * depth + "(1 a)" + ")" * depth
    tree = parse_tree(text, build_vocabulary(["a"]), CLASSES)
    assert (tree.n_leaves, tree.height) == (depth + 1, depth)


def test_lines_may_end_as_on_windows_and_words_may_hold_odd_spaces(tmp_path: Path) -> None:
    write_corpus("sst", tmp_path, train="(2 8\xa01\\/2)\r\n(2 a\u2028b)\r\n")
    corpus = load("sst", tmp_path)
    assert [tree.words.tolist() for tree in corpus.instances] == [[0], [1]]


def test_words_are_numbered_by_first_appearance_in_train(tmp_path: Path) -> None:
    write_corpus("sst", tmp_path, dev="(2 (2 new) (2 (1 unseen) (1 bad)))\n")
    train = load("sst", tmp_path)
    dev = load("sst", tmp_path, "dev")
    assert train.instances[0].words.tolist() == [0, 1, 0, -1, -1]
    assert train.instances[1].words.tolist() == [2, 3, -1]
    assert dev.instances[0].words.tolist() == [3, 4, 1, -1, -1]
    assert train.get_size("words") == dev.get_size("words") == 5


def test_one_unchecked_file_is_parsed_at_once(tmp_path: Path) -> None:
    write_corpus("sst", tmp_path, dev="(2 a)\n(9 a)\n")
    with pytest.raises(DataError, match="label '9'"):
        load("sst", tmp_path, "dev", sha256={"train": sha256(TINY), "dev": None})


def test_statistics_of_the_real_treebank(data_root: Path) -> None:
    # ED-Batch's release has 6 toy trees with 36 leaves and 3 more words before these 8,544 trees.
    found = dict(describe_corpus(load_shipped("sst", data_root)))
    assert found["instances"] == f"{8550 - 6} (tree)"
    assert f" {163_599 - 36} leaves and {155_049 - 30} internal" in found["vertices"]
    assert found["vocabulary"] == "18281 rows, 18280 used in this split"  # 18283 - 3
    assert (found["leaves"], found["height"]) == ("mean 19.14, max 52", "mean 9.83, max 29")


@pytest.mark.parametrize(("split", "n_instances"), [("dev", 1101), ("test", 2210)])
def test_other_splits_of_the_real_treebank(data_root: Path, split: str, n_instances: int) -> None:
    corpus = load_shipped("sst", data_root, split)
    words = np.concatenate([tree.words for tree in corpus.instances])
    assert len(corpus.instances) == n_instances
    assert corpus.get_size("words") == 18_281
    assert words.max() == 18_280  # the unknown word


def test_files_with_checksums_are_read_lazily_with_the_same_content(tmp_path: Path) -> None:
    parts = {"train": TINY, "dev": "(2 a)\n(3 (2 b) (1 a))\n"}
    write_corpus("sst", tmp_path, **parts)
    checksums = {split: sha256(text) for split, text in parts.items()}
    for split in parts:
        lazy, eager = load("sst", tmp_path, split, sha256=checksums), load("sst", tmp_path, split)
        assert isinstance(lazy.instances, LazyInstances)
        assert isinstance(eager.instances, tuple)
        assert hash_inputs([lazy.instances]) == hash_inputs([eager.instances])
        assert lazy.sha256 == eager.sha256 == checksums[split]


class OnlyLookups(dict[str, int]):
    """Classes that are never iterated, which would take as long as there are labels."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("iterated")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_a_tree_takes_no_longer_with_more_labels() -> None:
    text, vocabulary = "(3 (2 good) (1 (0 bad) (2 good)))", build_vocabulary(["good", "bad"])
    expected = parse_tree(text, vocabulary, CLASSES)
    found = parse_tree(text, vocabulary, OnlyLookups(CLASSES))
    assert np.array_equal(found.table, expected.table)
    with pytest.raises(DataError, match="label '7' is not an integer from 0 to 4"):
        parse_tree("(7 a)", vocabulary, OnlyLookups(CLASSES))


# --- sentences ---


def written(name: str) -> Any:
    """Return a fixture: a directory with an excerpt of a corpus."""

    @pytest.fixture(name=name)
    def folder(tmp_path: Path) -> Path:
        write_corpus(name, tmp_path)
        return tmp_path

    return folder


ptb, wikiner, iwslt15, ud_ewt = map(written, ("ptb", "wikiner", "iwslt15", "ud_ewt"))


# By frequency in the training text: the end (3 times) is first, then by count and spelling.
IDS = {w: i for i, w in enumerate(["<eos>", "the", "cat", "dog", "<unk>", "a", "sees"])}


def test_a_sentence_is_read_from_an_end_to_an_end(ptb: Path) -> None:
    corpus = load("ptb", ptb)
    assert (corpus.name, corpus.split, corpus.instance_kind) == ("ptb", "train", "chain")
    assert corpus.sizes == {"words": 10_000}
    assert [chain.n_words for chain in corpus.instances] == [6, 4, 3]
    text = ["the", "dog", "sees", "the", "cat"]
    assert corpus.instances[0].words.tolist() == [IDS[w] for w in ["<eos>", *text]]
    assert corpus.instances[0].labels.tolist() == [IDS[w] for w in [*text, "<eos>"]]
    assert len(corpus.instances[0].characters) == 0


def test_words_that_the_training_text_lacks_are_unknown(ptb: Path) -> None:
    corpus = load("ptb", ptb, "dev")
    text = ["the", "<unk>", "sees", "a", "dog"]
    assert corpus.instances[0].labels.tolist() == [IDS[w] for w in [*text, "<eos>"]]
    assert (corpus.name, corpus.split) == ("ptb", "dev")
    assert not corpus.synthetic


def test_more_words_than_ten_thousand_have_a_row_each(ptb: Path) -> None:
    write(ptb / "ptb", {"train": "".join(f"w{i} v{i}\n" for i in range(6000))}, ".txt")
    corpus = load("ptb", ptb)
    assert corpus.get_size("words") == 12_002  # including the end and the unknown word
    assert max(chain.words.max() for chain in corpus.instances) < 12_002


@pytest.mark.parametrize("steps", [1, 3, 5, 13])
def test_pieces_are_the_text_cut_at_equal_lengths(ptb: Path, steps: int) -> None:
    sentences = load("ptb", ptb)
    pieces = load("ptb", ptb, steps=steps)
    assert (pieces.name, pieces.get_size("words")) == ("ptb_fixed", 10_000)
    assert len(pieces.instances) == 13 // steps
    labels = np.concatenate([chain.labels for chain in sentences.instances])
    read = np.concatenate([[IDS["<eos>"]], labels])
    for index, chain in enumerate(pieces.instances):
        here = slice(index * steps, (index + 1) * steps)
        assert chain.words.tolist() == read[here].tolist()
        assert chain.labels.tolist() == labels[here].tolist()


def test_a_text_shorter_than_a_piece_is_refused(ptb: Path) -> None:
    with pytest.raises(DataError, match=r"train\.txt has 13 words .* steps=14; set fewer"):
        load("ptb", ptb, steps=14)


def test_a_word_may_hold_the_letters_of_an_end(ptb: Path) -> None:
    write(ptb / "ptb", {"train": "a <eos>b\n"}, ".txt")
    assert load("ptb", ptb).instances[0].n_words == 3


def test_checksums_of_either_kind_are_checked(ptb: Path) -> None:
    blob = "9d06adf295a4ca33830f971910619b3c40d952a2"  # printed by `git hash-object`
    for right in (sha256(PTB["train"]), f"git-blob:{blob}", None):
        assert len(load("ptb", ptb, sha256={"train": right}).instances) == 3
    with pytest.raises(DataError, match=f"train.txt has git-blob:{blob}, expected git-blob:00; "):
        load("ptb", ptb, sha256={"train": "git-blob:00"})


NAMED = {w: i for i, w in enumerate(["Ann", "lives", "in", "Rome", ".", "Bob"])}
LETTERS = {c: i for i, c in enumerate(["", *"Anlives", *"Rom", ".", *"Bb"])}
TAGS = {"I-PER": 0, "O": 1, "I-LOC": 2}


def spelled(chain: Chain) -> list[list[int]]:
    """Return the letters of every word."""
    letters = chain.characters.tolist()
    return [letters[start:end] for start, end in pairwise(chain.char_start)]


def test_words_and_tags_are_numbered_as_they_appear(wikiner: Path) -> None:
    corpus = load("wikiner", wikiner)
    assert corpus.sizes == {"words": 7, "characters": len(LETTERS) + 1, "classes": 3}
    assert (corpus.name, corpus.instance_kind) == ("wikiner", "chain")
    first = corpus.instances[0]
    assert first.words.tolist() == [NAMED[w] for w in ["Ann", "lives", "in", "Rome", "."]]
    assert first.labels.tolist() == [TAGS[t] for t in ["I-PER", "O", "O", "I-LOC", "O"]]


def test_words_below_the_count_are_spelled_between_two_pads(wikiner: Path) -> None:
    # "." occurs three times, Ann and lives twice, all others once: all are rare by default.
    assert all(spelled(load("wikiner", wikiner).instances[0]))
    lengths = {w: len(w) + 2 for w in NAMED}
    for rare_below, rare in ((0, ""), (1, ""), (2, "in Rome Bob"), (3, "in Rome Bob Ann lives")):
        chain = load("wikiner", wikiner, rare_below=rare_below).instances[0]
        expected = [lengths[w] * (w in rare.split()) for w in ("Ann", "lives", "in", "Rome", ".")]
        assert [len(letters) for letters in spelled(chain)] == expected
    chain = load("wikiner", wikiner, rare_below=2).instances[0]
    assert spelled(chain)[3] == [LETTERS[letter] for letter in ("", *"Rome", "")]
    # Rare words are known words.
    assert chain.words.tolist()[3] == NAMED["Rome"]


def test_words_and_letters_that_the_training_part_lacks_share_a_row(wikiner: Path) -> None:
    chain = load("wikiner", wikiner, "dev", rare_below=0).instances[0]
    assert chain.words.tolist() == [6, NAMED["lives"], NAMED["in"], NAMED["Ann"]]
    unknown = len(LETTERS)
    assert spelled(chain) == [[0, unknown, LETTERS["v"], LETTERS["e"], 0], [], [], []]


def test_a_word_may_contain_the_bar_and_a_no_break_space(wikiner: Path) -> None:
    write(wikiner / "wikiner", {"train": "a|b|O |||O x\u00a0y|O\n"}, ".txt")
    corpus = load("wikiner", wikiner)
    assert corpus.instances[0].words.tolist() == [0, 1, 2]
    assert corpus.get_size("classes") == 1


def test_missing_test_part_is_refused(wikiner: Path) -> None:
    with pytest.raises(DataError, match="wikiner has no part test; choose from train, dev"):
        load("wikiner", wikiner, "test")


def test_sides_stand_between_marks(iwslt15: Path) -> None:
    corpus = load("iwslt15", iwslt15)
    assert (corpus.name, corpus.instance_kind) == ("iwslt15", "sentence_pair")
    assert corpus.sizes == {"source_words": 7, "target_words": 6}
    pairs = [(p.source.tolist(), p.target.tolist()) for p in corpus.instances]
    assert pairs[0] == ([1, 3, 4, 2], [1, 3, 4, 2])
    assert pairs[1] == ([1, 5, 6, 4, 2], [1, 4, 5, 2])
    assert pairs[2] == ([1, 0, 2], [1, 0, 2])  # words that are not in the vocabularies
    assert corpus.skipped == {"with an empty side": 0}


def test_the_development_part_needs_no_training_file(iwslt15: Path) -> None:
    (iwslt15 / "iwslt15" / "train.en").unlink()
    dev = load("iwslt15", iwslt15, "dev")
    assert (dev.name, dev.split) == ("iwslt15", "dev")
    assert dev.instances[0].source.tolist() == [1, 5, 0, 2]


def test_the_checksum_of_a_corpus_sees_every_file(iwslt15: Path) -> None:
    before = load("iwslt15", iwslt15).sha256
    for name in ("train.en", "train.vi", "vocab.en", "vocab.vi"):
        more = IWSLT[name] + "more\n" if name.startswith("vocab") else "more " + IWSLT[name]
        write(iwslt15 / "iwslt15", {name: more})
        assert load("iwslt15", iwslt15).sha256 != before
        write(iwslt15 / "iwslt15", IWSLT)


def test_pairs_with_an_empty_side_can_be_left_out_of_the_training_part(iwslt15: Path) -> None:
    write(iwslt15 / "iwslt15", {"train.vi": "một nhà\n\nkhông\n", "train.en": "\nold\nhouse\n"})
    corpus = load("iwslt15", iwslt15, empty_train_pairs="skip")
    assert [pair.source.tolist() for pair in corpus.instances] == [[1, 4, 2]]
    assert corpus.skipped == {"with an empty side": 2}
    write(iwslt15 / "iwslt15", {"tst2012.vi": "\n", "tst2012.en": "a\n"})
    with pytest.raises(DataError, match=r"tst2012\.vi is empty"):
        load("iwslt15", iwslt15, "dev", empty_train_pairs="skip")
    write(iwslt15 / "iwslt15", {"tst2012.vi": "b\n\n", "tst2012.en": "a\nb\n"})
    with pytest.raises(DataError, match=r"tst2012\.vi:2: the sentence is empty; add words$"):
        load("iwslt15", iwslt15, "dev", empty_train_pairs="skip")


def test_projective_trees_are_read_and_others_are_counted(ud_ewt: Path) -> None:
    corpus = load("ud_ewt", ud_ewt)
    assert (corpus.name, corpus.instance_kind) == ("ud_ewt", "parsed_sentence")
    assert len(corpus.instances) == 2
    assert corpus.skipped == {"not projective": 1}
    dogs, twelve = corpus.instances
    assert dogs.heads.tolist() == [3, 3, 3, 4]  # without the token don't and the empty node
    assert dogs.relations.tolist() == [0, 1, 2, 3]
    assert (dogs.n_transitions, (dogs.kinds == SHIFT).sum()) == (8, 4)
    assert twelve.heads.tolist() == [1, 2]


def test_words_are_lower_case_and_numbers_one_word(ud_ewt: Path) -> None:
    corpus = load("ud_ewt", ud_ewt)
    dogs, twelve = corpus.instances
    # dogs, do, n't, bark and the root, then NUM; the nonprojective sentence is not included.
    assert dogs.words.tolist() == [0, 1, 2, 3, 4]
    assert twelve.words.tolist() == [5, 0, 4]
    assert dogs.tags.tolist() == [0, 1, 2, 3, 4]
    assert twelve.tags.tolist() == [5, 0, 4]
    assert corpus.sizes == {"words": 7, "tags": 7, "relations": 6}


def test_entries_absent_from_training_part_share_an_index(ud_ewt: Path) -> None:
    lines = [word("1", "Cats", "NOUN", "2", "nsubj"), word("2", "purr", "ADJ", "0", "root")]
    write(ud_ewt / "ud_ewt", {"dev": "\n".join(lines)}, ".conllu")
    corpus = load("ud_ewt", ud_ewt, "dev")
    (cats,) = corpus.instances
    assert cats.words.tolist() == [6, 6, 4]
    assert cats.tags.tolist() == [0, 6, 4]
    assert cats.relations.tolist() == [5, 3]


def test_relations_may_lose_their_subtypes(ud_ewt: Path) -> None:
    lines = [word("1", "a", "X", "2", "nsubj"), word("2", "b", "X", "0", "root")]
    write(ud_ewt / "ud_ewt", {"train": DOGS_BARK + "\n\n" + "\n".join(lines)}, ".conllu")
    assert load("ud_ewt", ud_ewt).get_size("relations") == 6
    assert load("ud_ewt", ud_ewt, subtypes=False).get_size("relations") == 5


def test_a_file_without_any_projective_tree_is_refused(ud_ewt: Path) -> None:
    write(ud_ewt / "ud_ewt", {"train": CROSSED}, ".conllu")
    with pytest.raises(DataError, match=r"train\.conllu has no projective tree, which a"):
        load("ud_ewt", ud_ewt)


def test_an_underscore_is_a_word(ud_ewt: Path) -> None:
    write(ud_ewt / "ud_ewt", {"train": word("1", "_", "SYM", "0", "root")}, ".conllu")
    assert len(load("ud_ewt", ud_ewt).instances) == 1


def test_real_parts_have_the_documented_shape(data_root: Path) -> None:
    lengths = [chain.n_words for chain in load_shipped("ptb_dev", data_root).instances]
    assert (len(lengths), sum(lengths), min(lengths), max(lengths)) == (3370, 73_760, 2, 75)
    fixed = load_shipped("ptb_fixed_dev", data_root).instances
    assert {chain.n_words for chain in fixed} == {64}
    assert len(fixed) == 73_760 // 64

    corpus = load_shipped("wikiner_dev", data_root)
    assert (len(corpus.instances), sum(c.n_words for c in corpus.instances)) == (1696, 39_007)
    assert corpus.sizes == {"words": 8505, "characters": 157, "classes": 5}
    letters = np.concatenate([np.diff(chain.char_start) for chain in corpus.instances])
    assert (letters > 0).mean() == pytest.approx(0.289, abs=0.0005)

    for split, n_pairs in (("dev", 1553), ("test", 1268)):
        corpus = load_shipped("iwslt15_dev", data_root, split)
        assert len(corpus.instances[:]) == n_pairs
        assert corpus.sizes == {"source_words": 17_191, "target_words": 7709}

    corpus = load_shipped("ud_ewt_dev", data_root)
    assert len(corpus.instances[:]) == 1970
    assert corpus.skipped == {"not projective": 31}
    assert corpus.sizes == {"words": 4534, "tags": 19, "relations": 50}
