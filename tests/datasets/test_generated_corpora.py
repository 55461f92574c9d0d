"""Generated corpora: trees of the treebank's shape and complete ones, fixed by a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from datasets.reading.lazy import LazyInstances
from datasets.shape import tree_shapes
from harness.contracts.corpus import Corpus, inputs_sha256, load_corpus, mini_batches
from harness.contracts.home import home_of
from harness.errors import ConfigError, DataError
from harness.values.arrays import shuffled, uniforms
from harness.values.instances import Tree
from harness.values.places import CONF_DIR
from tests.support.corpora import complete, options_of, synthetic


def same(one: Tree, other: Tree) -> bool:
    return inputs_sha256([[one]]) == inputs_sha256([[other]])


def test_synthetic_trees_have_the_published_shape() -> None:
    # Means within 2 %: leaves 19.13 and height 9.8 are those of the treebank.
    corpus = synthetic()
    shapes = tree_shapes(corpus.instances, corpus.size("classes"))
    assert corpus.synthetic
    assert (shapes.n_instances, corpus.size("words")) == (8544, 18_281)
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
    assert corpus.size("words") == 16
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
        ({"n_leaves": "many"}, "n_leaves=many is not allowed; give a whole number"),
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


LEAF = Tree([0], [0], [-1], [-1])  # type: ignore[arg-type]


def test_a_corpus_checks_itself() -> None:
    with pytest.raises(DataError, match="has 0 instances"):
        Corpus("empty", "train", (), {"words": 1}, False, "", "")
    with pytest.raises(DataError, match=r"corpus odd \(train\) has 0 tags; it needs at least 1"):
        Corpus("odd", "train", (LEAF,), {"words": 1, "tags": 0}, False, "", "")
    odd = Corpus("odd", "train", (LEAF,), {"words": 7, "tags": 2}, False, "", "")
    assert (odd.size("words"), odd.size("tags")) == (7, 2)
    with pytest.raises(
        DataError, match=r"odd \(train\) brings no size classes; it brings words, t"
    ):
        odd.size("classes")


def choices() -> list[Path]:
    return sorted((CONF_DIR / "dataset").glob("*.yaml"))


@pytest.mark.parametrize("path", choices(), ids=lambda path: path.stem)
def test_every_dataset_of_conf_loads_with_its_options(path: Path, data_root: Path) -> None:
    choice = yaml.safe_load(path.read_text())
    home = home_of(choice["loader"])
    needs = choice.get("needs", "")
    if home is not None and needs and not (data_root / home.folder / needs).is_file():
        pytest.skip(f"{data_root}/{home.folder} has no {needs}")
    corpus = load_corpus(choice["loader"], "train", data_root, **choice["options"])
    assert (corpus.name, corpus.instance_kind) == (path.stem, choice["instance_kind"])


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
