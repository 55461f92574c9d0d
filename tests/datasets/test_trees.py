"""Trees as S-expressions in files: their content, and the shapes of the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynbatch.datasets.parts.reading import LazyInstances
from dynbatch.datasets.sst import CLASSES, list_words, parse_tree
from dynbatch.harness.commands.data import describe_corpus
from dynbatch.harness.contracts.corpus import hash_inputs
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.instances import Tree
from tests.support.corpora import TINY, load, load_shipped, sha256, write_corpus

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
    tree = parse_tree(text, {word: i for i, word in enumerate(words)}, len(words), CLASSES)
    assert from_tree(tree, words, tree.n_vertices - 1) == nested
    assert list_words(text) == words


def test_a_very_deep_tree_is_read() -> None:
    depth = 5000
    tree = parse_tree("(2 (1 a) " * depth + "(1 a)" + ")" * depth, {"a": 0}, 1, CLASSES)
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


def test_right_checksums_are_accepted_and_recorded(tmp_path: Path) -> None:
    write_corpus("sst", tmp_path, dev="(2 a)\n")
    checksums = {"train": sha256(TINY), "dev": sha256("(2 a)\n")}
    assert load("sst", tmp_path, "train", sha256=checksums).sha256 == checksums["train"]
    corpus = load("sst", tmp_path, "dev", sha256=checksums)
    assert corpus.sha256 == checksums["dev"]
    assert not corpus.synthetic


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


def test_lazy_and_eager_reading_agree(data_root: Path) -> None:
    lazy = load_shipped("sst", data_root, "dev")
    eager = load("sst", data_root, "dev")
    assert isinstance(lazy.instances, LazyInstances)
    assert isinstance(eager.instances, tuple)
    assert hash_inputs([lazy.instances]) == hash_inputs([eager.instances])


class OnlyLookups(dict[str, int]):
    """Classes that are never iterated, which would take as long as there are labels."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("iterated")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_a_tree_takes_no_longer_with_more_labels() -> None:
    text = "(3 (2 good) (1 (0 bad) (2 good)))"
    expected = parse_tree(text, {"good": 0, "bad": 1}, 2, CLASSES)
    found = parse_tree(text, {"good": 0, "bad": 1}, 2, OnlyLookups(CLASSES))
    assert np.array_equal(found.table, expected.table)
    with pytest.raises(DataError, match="label '7' is not an integer from 0 to 4"):
        parse_tree("(7 a)", {}, 0, OnlyLookups(CLASSES))
