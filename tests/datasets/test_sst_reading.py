"""Trees as S-expressions in files: read as they were written, and named where they are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.reading.sexpressions import parse_tree, words_of
from harness.contracts.corpus import load_corpus
from harness.errors import ConfigError, DataError
from harness.values.instances import Tree
from tests.support.corpora import synthetic, write_sst

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
    """Turn a tree back into nested tuples."""
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
def test_a_written_tree_is_read_back(nested: Any) -> None:
    words = list(dict.fromkeys(leaves_of(nested)))
    text = to_text(nested)
    tree = parse_tree(text, {word: i for i, word in enumerate(words)}, len(words), 5)
    assert from_tree(tree, words, tree.n_vertices - 1) == nested
    assert words_of(text) == words


def test_escapes_are_undone() -> None:
    assert words_of(r"(2 (1 1\/2) (2 \*\*))") == ["1/2", "**"]
    assert parse_tree(r"(2 1\/2)", {"1/2": 7}, 0, 5).words.tolist() == [7]


def test_vertices_are_in_post_order() -> None:
    ids = {"good": 0, "bad": 1}
    tree = parse_tree("(3 (2 good) (1 (0 bad) (2 good)))", ids, 2, 5)
    assert tree.words.tolist() == [0, 1, 0, -1, -1]
    assert tree.labels.tolist() == [2, 0, 2, 1, 3]
    assert tree.left.tolist() == [-1, -1, -1, 1, 0]
    assert tree.right.tolist() == [-1, -1, -1, 2, 3]


def test_words_may_share_rows_as_in_the_release(tmp_path: Path) -> None:
    write_sst(tmp_path, dev="(2 (2 new) (2 (1 unseen) (1 bad)))\n")
    dev = load_corpus("datasets.sst", "dev", tmp_path, vocab_modulo=3)
    assert (dev.size("words"), dev.instances[0].words.tolist()) == (3, [0, 1, 1, -1, -1])
    own, shared = synthetic(), synthetic(vocab_modulo=256)
    assert shared.size("words") == 256
    one, other = own.instances[3].words, shared.instances[3].words
    assert other.tolist() == np.where(one < 0, -1, one % 256).tolist()
    with pytest.raises(ConfigError, match="vocab_modulo=-2 is not allowed"):
        synthetic(vocab_modulo=-2)


def test_a_very_deep_tree_is_read() -> None:
    depth = 5000
    tree = parse_tree("(2 (1 a) " * depth + "(1 a)" + ")" * depth, {"a": 0}, 1, 5)
    assert (tree.n_leaves, tree.height) == (depth + 1, depth)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(2 (1 a) (1 b)", "unbalanced: 1 '(' not closed"),
        ("(2 (1 a", "unbalanced: 2 '(' not closed"),
        ("(2 (1 a) (1 b)))", "unbalanced: a ')' closes nothing"),
        (")", "unbalanced: a ')' closes nothing"),
        ("((1 a) (1 b))", "not followed by a label"),
        ("( (1 a) (1 b))", "not followed by a label"),
        ("(5 a)", "label '5' is not an integer from 0 to 4"),
        ("(-1 a)", "label '-1' is not an integer from 0 to 4"),
        ("(2.0 a)", "label '2.0' is not an integer from 0 to 4"),
        ("(good)", "label 'good' is not an integer from 0 to 4"),
        ("(2 (1 a))", "1 child, not two"),
        ("(2 (1 a) (1 b) (1 c))", "3 children, not two"),
        ("(2 (1 a) b)", "both the word 'b' and children"),
        ("(2 b (1 a))", "both the word 'b' and children"),
        ("(2 two words)", "2 words"),
        ("(2 )", "empty word"),
        ("(2 (1 a) (1))", "empty word"),
        ("(2 a) more", "the text 'more' follows the tree"),
        ("(2 a) (2 b)", "a second tree follows the tree"),
        ("word", "the text 'word' is outside a tree"),
        ("more (2 a)", "the text 'more' is outside a tree"),
        ("", "the line is empty"),
    ],
)
@pytest.mark.parametrize("bad_split", ["train", "dev"])
def test_a_malformed_tree_gives_file_line_and_reason(
    tmp_path: Path, line: str, reason: str, bad_split: str
) -> None:
    write_sst(tmp_path, **{bad_split: f"(2 a)\n{line}\n(2 a)\n"})
    with pytest.raises(DataError) as caught:
        load_corpus("datasets.sst", "dev", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'sst' / bad_split}.txt:2: ")
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "\n", "\n\n"])
def test_an_empty_file_is_an_error(tmp_path: Path, text: str) -> None:
    write_sst(tmp_path, train=text)
    with pytest.raises(DataError, match=r"train\.txt is empty"):
        load_corpus("datasets.sst", "train", tmp_path)


def test_bytes_that_are_not_text_give_file_and_line(tmp_path: Path) -> None:
    write_sst(tmp_path)
    (tmp_path / "sst" / "train.txt").write_bytes(b"(2 a)\n(2 \xff)\n")
    with pytest.raises(DataError, match=r"train\.txt:2: not UTF-8"):
        load_corpus("datasets.sst", "train", tmp_path)


def test_lines_may_end_as_on_windows_and_words_may_hold_odd_spaces(tmp_path: Path) -> None:
    write_sst(tmp_path, train="(2 8\xa01\\/2)\r\n(2 a\u2028b)\r\n")
    corpus = load_corpus("datasets.sst", "train", tmp_path)
    assert [tree.words.tolist() for tree in corpus.instances] == [[0], [1]]


def test_words_are_numbered_by_first_appearance_in_train(tmp_path: Path) -> None:
    write_sst(tmp_path, dev="(2 (2 new) (2 (1 unseen) (1 bad)))\n")
    train = load_corpus("datasets.sst", "train", tmp_path)
    dev = load_corpus("datasets.sst", "dev", tmp_path)
    assert train.instances[0].words.tolist() == [0, 1, 0, -1, -1]
    assert train.instances[1].words.tolist() == [2, 3, -1]
    assert dev.instances[0].words.tolist() == [3, 4, 1, -1, -1]
    assert train.size("words") == dev.size("words") == 5
