"""Corpora: reading, generating, checking, and drawing mini-batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from datasets.base import (
    Corpus,
    inputs_sha256,
    load_corpus,
    mini_batches,
)
from datasets.lazy import LazyInstances
from datasets.seeded import shuffled, uniforms
from datasets.sexpressions import parse_tree, words_of
from datasets.shape import tree_shapes
from harness.errors import ConfigError, DataError
from harness.grid import CONF_DIR
from harness.instances import Tree

NESTED = st.recursive(
    st.tuples(
        st.integers(0, 4),
        st.text(st.characters(exclude_characters=" \t\n\r()\\", codec="utf-8"), min_size=1),
    ),
    lambda subtree: st.tuples(st.integers(0, 4), subtree, subtree),
    max_leaves=30,
)
TINY = "(3 (2 good) (1 (0 bad) (2 good)))\n(4 (2 1\\/2) (2 new))\n"


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


def write_sst(root: Path, train: str = TINY, dev: str = TINY) -> dict[str, str]:
    """Write a tiny treebank; returns its checksums."""
    (root / "sst").mkdir()
    for split, text in (("train", train), ("dev", dev)):
        (root / "sst" / f"{split}.txt").write_bytes(text.encode())
    return {"train": sha256(train), "dev": sha256(dev)}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def same(one: Tree, other: Tree) -> bool:
    return inputs_sha256([[one]]) == inputs_sha256([[other]])


def options_of(name: str) -> dict[str, Any]:
    """The options of conf/dataset/<name>.yaml."""
    choice = yaml.safe_load((CONF_DIR / "dataset" / f"{name}.yaml").read_text())
    assert choice["name"] == name
    options: dict[str, Any] = choice["options"]
    return options


def synthetic(split: str = "train", **options: Any) -> Corpus:
    return load_corpus("datasets.sst_synthetic", split, None, **options)


def complete(**options: Any) -> Corpus:
    return load_corpus("datasets.complete_trees", "train", None, **options)


# Reading


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
    assert (dev.vocab_size, dev.instances[0].words.tolist()) == (3, [0, 1, 1, -1, -1])
    own, shared = synthetic(), synthetic(vocab_modulo=256)
    assert shared.vocab_size == 256
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
    assert train.vocab_size == dev.vocab_size == 5


# Files and checksums


def test_right_checksums_are_accepted_and_recorded(tmp_path: Path) -> None:
    checksums = write_sst(tmp_path, dev="(2 a)\n")
    corpus = load_corpus("datasets.sst", "dev", tmp_path, sha256=checksums)
    assert corpus.sha256 == checksums["dev"] == sha256("(2 a)\n")
    assert not corpus.synthetic


@pytest.mark.parametrize("changed", ["train", "dev"])
def test_a_wrong_checksum_names_found_expected_and_what_to_do(tmp_path: Path, changed: str) -> None:
    checksums = write_sst(tmp_path)
    found, checksums[changed] = checksums[changed], "0" * 64
    with pytest.raises(DataError) as caught:
        load_corpus("datasets.sst", "dev", tmp_path, sha256=checksums)
    message = str(caught.value)
    for part in (f"{changed}.txt", found, "0" * 64, "bench-data fetch sst"):
        assert part in message


def test_one_unchecked_file_is_parsed_at_once(tmp_path: Path) -> None:
    checksums: dict[str, Any] = write_sst(tmp_path, dev="(2 a)\n(9 a)\n")
    with pytest.raises(DataError, match="label '9'"):
        load_corpus("datasets.sst", "dev", tmp_path, sha256=checksums | {"dev": None})


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.txt is missing; run `bench-data fetch sst`"):
        load_corpus("datasets.sst", "train", tmp_path, sha256=options_of("sst")["sha256"])


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sst" / "train.txt").mkdir(parents=True)
    with pytest.raises(DataError, match="cannot be read"):
        load_corpus("datasets.sst", "train", tmp_path)


def test_sst_without_a_data_root_is_an_error() -> None:
    with pytest.raises(DataError, match="needs a data_root"):
        load_corpus("datasets.sst", "train", None)


def test_statistics_of_the_real_treebank(data_root: Path) -> None:
    # ED-Batch's release puts 6 toy trees of 36 leaves and 3 more words before these 8544.
    corpus = load_corpus("datasets.sst", "train", data_root, **options_of("sst"))
    shapes = tree_shapes(corpus.instances, corpus.n_classes)
    assert shapes.n_instances == 8550 - 6
    assert shapes.n_leaves == 163_599 - 36
    assert shapes.n_vertices - shapes.n_leaves == 155_049 - 30
    assert shapes.n_words_used == corpus.vocab_size - 1 == 18_283 - 3
    assert (shapes.leaves_max, shapes.height_max) == (52, 29)
    assert shapes.leaves_mean == pytest.approx(19.13, abs=0.02)
    assert shapes.height_mean == pytest.approx(9.8, abs=0.05)


@pytest.mark.parametrize(("split", "n_instances"), [("dev", 1101), ("test", 2210)])
def test_other_splits_of_the_real_treebank(data_root: Path, split: str, n_instances: int) -> None:
    corpus = load_corpus("datasets.sst", split, data_root, **options_of("sst"))
    words = np.concatenate([tree.words for tree in corpus.instances])
    assert len(corpus.instances) == n_instances
    assert corpus.vocab_size == 18_281
    assert words.max() == 18_280  # the unknown word


def test_lazy_and_eager_reading_agree(data_root: Path) -> None:
    lazy = load_corpus("datasets.sst", "dev", data_root, **options_of("sst"))
    eager = load_corpus("datasets.sst", "dev", data_root)
    assert isinstance(lazy.instances, LazyInstances)
    assert isinstance(eager.instances, tuple)
    assert inputs_sha256([lazy.instances]) == inputs_sha256([eager.instances])


# Generated corpora


def test_synthetic_trees_have_the_published_shape() -> None:
    # Means within 2 %: leaves 19.13 and height 9.8 are those of the treebank.
    corpus = synthetic()
    shapes = tree_shapes(corpus.instances, corpus.n_classes)
    assert corpus.synthetic
    assert (shapes.n_instances, corpus.vocab_size) == (8544, 18_281)
    assert shapes.leaves_mean == pytest.approx(19.13, rel=0.02)
    assert shapes.height_mean == pytest.approx(9.8, rel=0.02)
    assert 45 <= shapes.leaves_max <= 52
    assert 24 <= shapes.height_max <= 34
    assert shapes.label_shares == pytest.approx((0.026, 0.108, 0.690, 0.139, 0.038), abs=0.003)


def test_synthetic_trees_match_the_treebank_in_distribution(data_root: Path) -> None:
    real = load_corpus("datasets.sst", "train", data_root, **options_of("sst")).instances
    drawn = synthetic().instances
    tenths = np.linspace(0.1, 0.9, 9)
    for measure in ("n_leaves", "height"):
        one, other = (
            np.quantile([getattr(tree, measure) for tree in trees], tenths)
            for trees in (real, drawn)
        )
        np.testing.assert_allclose(one, other, atol=1)
    counts = [
        np.sort(np.bincount(np.concatenate([t.words[t.words >= 0] for t in trees])))[::-1]
        for trees in (real, drawn)
    ]
    ranks = np.array([1, 2, 3, 10, 50, 100, 500, 1000, 5000]) - 1
    np.testing.assert_allclose(counts[1][ranks], counts[0][ranks], rtol=0.34)


@pytest.mark.parametrize(("split", "n_instances"), [("dev", 1101), ("test", 2210)])
def test_synthetic_splits_have_the_treebanks_sizes(split: str, n_instances: int) -> None:
    assert len(synthetic(split).instances) == n_instances


def test_synthetic_trees_depend_on_seed_and_split_alone() -> None:
    def inputs(corpus: Corpus) -> str:
        return inputs_sha256([corpus.instances[:20]])

    assert inputs(synthetic()) == inputs(synthetic())
    assert inputs(synthetic()) != inputs(synthetic(seed=1))
    assert inputs(synthetic()) != inputs(synthetic("dev"))
    assert synthetic().sha256 == synthetic().sha256 != synthetic(seed=1).sha256
    # An instance does not depend on which were built before it.
    assert same(synthetic().instances[7], synthetic().instances[:20][7])


def test_generated_inputs_are_pinned() -> None:
    # The same on every machine and NumPy release; a change of the generators changes records.
    assert inputs_sha256([synthetic().instances[:64]])[:16] == "8a976d67f60cea3b"
    assert inputs_sha256([complete(n_leaves=8).instances[:64]])[:16] == "6f5cad096a3f23bc"
    assert shuffled(8, 0).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]


def test_complete_trees_are_complete() -> None:
    corpus = complete(n_leaves=16, n_instances=5)
    assert len(corpus.instances) == 5
    assert corpus.vocab_size == 16
    for tree in corpus.instances:
        assert (tree.n_vertices, tree.n_leaves, tree.height) == (31, 16, 4)
        assert tree.words.max() < 16
    assert not same(*corpus.instances[:2])


def test_complete_trees_have_256_leaves_by_default() -> None:
    assert complete(**options_of("complete_trees")).instances[0].n_vertices == 511
    words = np.concatenate([tree.words for tree in complete().instances[:100]])
    counts = np.bincount(words[words >= 0], minlength=256)
    assert len(counts) == 256
    assert counts.min() > 50  # 100 on average


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_leaves": 12}, "n_leaves=12 is not allowed; give a power of two"),
        ({"n_leaves": 0}, "n_leaves=0"),
        ({"n_leaves": -8}, "n_leaves=-8"),
        ({"n_leaves": "many"}, "n_leaves=many is not allowed; give an integer"),
        ({"n_instances": 0}, "n_instances=0"),
        ({"n_trees": 3}, "n_trees is unknown .* n_leaves, n_instances, seed"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        complete(**options)


def test_unknown_loader_and_split_are_named() -> None:
    with pytest.raises(ConfigError, match=r"loader=datasets\.nothing is not a module"):
        load_corpus("datasets.nothing", "train", None)
    with pytest.raises(ConfigError, match="split=dve is unknown; choose one of train, dev, test"):
        synthetic("dve")


def test_a_corpus_checks_itself() -> None:
    with pytest.raises(DataError, match="has 0 instances"):
        Corpus("empty", "train", (), 1, 5, False, "", "")


def test_every_dataset_of_conf_loads_with_its_options(data_root: Path) -> None:
    for path in (CONF_DIR / "dataset").glob("*.yaml"):
        choice = yaml.safe_load(path.read_text())
        corpus = load_corpus(choice["loader"], "train", data_root, **choice["options"])
        assert (corpus.name, corpus.instance_kind) == (path.stem, choice["instance_kind"])


# Seeded numbers and lazy instances


def test_uniform_numbers_fill_the_unit_interval() -> None:
    numbers = uniforms(10_000, 3, 4)
    assert 0 <= numbers.min() < 0.01
    assert 0.99 < numbers.max() < 1
    assert numbers.mean() == pytest.approx(0.5, abs=0.02)
    assert not np.array_equal(numbers, uniforms(10_000, 4, 3))


def test_a_negative_seed_is_an_error() -> None:
    with pytest.raises(ConfigError, match="seed=-1 is not allowed"):
        uniforms(3, -1)
    with pytest.raises(ConfigError, match="seed=-2 is not allowed"):
        mini_batches(complete(n_leaves=2), 1, 1, seed=-2)


def test_lazy_instances_are_built_once_and_only_when_asked_for() -> None:
    asked: list[int] = []
    trees = complete(n_leaves=2).instances

    def build(index: int) -> Tree:
        asked.append(index)
        return trees[index]

    lazy = LazyInstances(5, build)
    assert asked == []
    assert lazy[-1] is lazy[4] is trees[4]
    assert lazy[1:3] == (trees[1], trees[2])
    assert asked == [4, 1, 2]
    assert len(list(lazy)) == len(lazy) == 5
    with pytest.raises(IndexError):
        lazy[5]


# Mini-batches


def indices(corpus: Corpus, batches: list[tuple[Tree, ...]]) -> list[list[int]]:
    place = {id(tree): index for index, tree in enumerate(corpus.instances)}
    return [[place[id(tree)] for tree in batch] for batch in batches]


def test_mini_batches_in_the_files_order_wrap_around() -> None:
    corpus = complete(n_leaves=2, n_instances=5)
    found = indices(corpus, mini_batches(corpus, 2, 4, seed=3, order="file"))
    assert found == [[0, 1], [2, 3], [4, 0], [1, 2]]


def test_one_pass_leaves_the_partial_mini_batch_out() -> None:
    corpus = complete(n_leaves=2, n_instances=5)
    assert indices(corpus, mini_batches(corpus, 2, None, 0, "file")) == [[0, 1], [2, 3]]
    assert indices(corpus, mini_batches(corpus, 7, None, 0, "file")) == [[0, 1, 2, 3, 4, 0, 1]]


def test_shuffled_mini_batches_are_fixed_by_the_seed() -> None:
    corpus = complete(n_leaves=2, n_instances=20)
    one = indices(corpus, mini_batches(corpus, 5, 8, seed=1))
    assert one == indices(corpus, mini_batches(corpus, 5, 8, seed=1))
    assert one != indices(corpus, mini_batches(corpus, 5, 8, seed=2))
    assert sorted(i for batch in one[:4] for i in batch) == list(range(20))
    assert one[:4] == one[4:]  # the second pass repeats the first


@pytest.mark.parametrize(
    ("batch_size", "n", "order", "message"),
    [
        (0, 1, "file", "batch_size=0"),
        (-1, None, "file", "batch_size=-1"),
        (1, 0, "file", "n_mini_batches=0"),
        (1, 1, "sorted", "order=sorted is unknown; choose one of shuffled, file"),
    ],
)
def test_wrong_mini_batches_are_refused(
    batch_size: int, n: int | None, order: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        mini_batches(complete(n_leaves=2), batch_size, n, 0, order)


def test_the_hash_of_inputs_sees_values_order_and_borders() -> None:
    a, b, c = complete(n_leaves=4).instances[:3]
    changed = Tree(a.words, (a.labels + 1) % 5, a.left, a.right)
    hashes = [
        inputs_sha256(batches)
        for batches in ([[a, b], [c]], [[a], [b, c]], [[b, a], [c]], [[a, b]], [[changed, b], [c]])
    ]
    assert len(set(hashes)) == len(hashes)
    assert hashes[0] == inputs_sha256([(a, b), (c,)])
