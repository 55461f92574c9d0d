"""Corpora from a seed: pinned digests, and statistics compared with those of the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dynbatch.datasets.parts.reading import LazyInstances
from dynbatch.datasets.xnli_synthetic import LONGEST, MEANS
from dynbatch.harness.contracts.corpus import Corpus, hash_inputs, load_corpus
from dynbatch.harness.contracts.home import SPLITS, find_home
from dynbatch.harness.contracts.model import find_model_class
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.planning.yaml_files import list_choices, list_formats, read_mapping
from dynbatch.harness.values.arrays import draw_permutation
from dynbatch.harness.values.instances import Chain, Instance, SentencePair, Tree
from dynbatch.harness.values.parsed import ParsedSentence
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.corpora import EXCERPTS, complete, load, load_shipped, synthetic, write_corpus

# Number of instances of each part, and digest of the first 64, of every generator.
GENERATED = {
    "sst_synthetic": ((8544, 1101, 2210), "8a976d67f60cea3b"),
    "complete_trees": ((1024, 1024, 1024), "142b0f7d1369f0fb"),
    "lattice_synthetic": ((1147, 113, 316), "6e08b6e8526647d2"),
    "ptb_synthetic": ((42_068, 3370, 3761), "e5d231e8e2ba6f4c"),
    "ptb_fixed_synthetic": ((14_524, 1152, 1287), "368e4a194dfc1a91"),
    "wikiner_synthetic": ((16_960, 1696, 1696), "d24c3e5b1e985e62"),
    "iwslt15_synthetic": ((133_317, 1553, 1268), "84c3e9bd95164c74"),
    "ud_ewt_synthetic": ((12_544, 2001, 2077), "7bcaefa65845121a"),
    "bilstm_synthetic": ((1024, 1024, 1024), "4b9b6117c76db8d9"),
    "xnli_synthetic": ((20_000, 4980, 10_020), "618198263ba1a1e5"),
}
FIELDS = {  # fields of instances, by the size that bounds them
    "classes": ("labels", "tags"),
    "words": ("words", "tokens"),
    "characters": ("characters", "tokens"),
    "source_words": ("source",),
    "target_words": ("target",),
}


def generated(name: str, split: str = "dev", **options: Any) -> Corpus:
    return load_shipped(name, None, split, **options)


def digest(instances: Sequence[Instance]) -> str:
    return hash_inputs([instances])


@pytest.mark.parametrize("name", GENERATED)
def test_instances_depend_only_on_seed_split_and_index(name: str) -> None:
    one, another = generated(name), generated(name)
    assert isinstance(one.instances, LazyInstances)
    assert digest(one.instances[:20]) == digest(another.instances[:20])
    assert digest(one.instances[:20]) != digest(generated(name, seed=1).instances[:20])
    assert digest(one.instances[:20]) != digest(generated(name, "train").instances[:20])
    assert one.sha256 == another.sha256 != generated(name, seed=1).sha256
    assert digest([generated(name).instances[7]]) == digest([one.instances[7]])
    with pytest.raises(ConfigError, match=r"^dataset\.options\.seed=-1 is not allowed"):
        generated(name, seed=-1)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_inputs_are_pinned(name: str) -> None:
    """Instances are equal on all machines and NumPy releases, because changes affect records."""
    sizes, expected = GENERATED[name]
    assert tuple(len(generated(name, split).instances) for split in SPLITS) == sizes
    assert digest(generated(name, "train").instances[:64])[:16] == expected


def test_permutations_are_pinned() -> None:
    assert draw_permutation(8, 0).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]
    assert digest(complete(n_leaves=8).instances[:64])[:16] == "6f5cad096a3f23bc"
    with pytest.raises(ConfigError, match=r"^seed=-1 is not allowed"):
        draw_permutation(8, -1)


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize("split", ["train", "test"])
def test_ids_are_below_the_sizes(name: str, split: str) -> None:
    corpus = generated(name, split)
    some: Sequence[Any] = corpus.instances[:300]
    for size, rows in corpus.sizes.items():
        field = next(field for field in FIELDS.get(size, (size,)) if hasattr(some[0], field))
        joined = np.concatenate([getattr(one, field) for one in some])
        if field == "tokens":
            is_character = np.concatenate([one.is_character for one in some])
            joined = joined[is_character == (size == "characters")]
        assert joined.max() < rows
        assert joined.min() >= (-1 if corpus.instance_kind == "tree" else 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"n_leaves": 12},
            r"^dataset\.options\.n_leaves=12 is not allowed: expected a power",
        ),
        ({"n_leaves": 0}, "n_leaves=0"),
        ({"n_trees": 3}, "n_trees .* n_leaves, n_instances, seed"),
    ],
)
def test_wrong_options_are_named(options: dict[str, int], message: str) -> None:
    """tests/planning/test_every_option.py has wrong values of every type."""
    with pytest.raises(ConfigError, match=message):
        complete(**options)


@pytest.fixture(scope="module")
def drawn_trees() -> Corpus:
    return synthetic()


def test_synthetic_trees_have_the_published_shape(drawn_trees: Corpus) -> None:
    # Means of leaves and height are within 2% of the treebank's 19.13 and 9.8.
    trees = drawn_trees.instances
    assert drawn_trees.synthetic
    assert (len(trees), drawn_trees.get_size("words")) == (8544, 18_281)
    leaves, heights = (
        np.array([getattr(t, name) for t in trees]) for name in ("n_leaves", "height")
    )
    assert leaves.mean() == pytest.approx(19.13, rel=0.02)
    assert heights.mean() == pytest.approx(9.8, rel=0.02)
    assert 45 <= leaves.max() <= 52
    assert 24 <= heights.max() <= 34
    shares = np.bincount(np.concatenate([tree.labels for tree in trees])) / (2 * leaves - 1).sum()
    assert shares == pytest.approx((0.026, 0.108, 0.690, 0.139, 0.038), abs=0.003)


def test_synthetic_trees_are_distributed_as_real_ones(data_root: Path, drawn_trees: Corpus) -> None:
    real = load_shipped("sst", data_root).instances
    drawn = drawn_trees.instances
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


def test_complete_trees_are_complete() -> None:
    corpus = complete(n_leaves=16, n_instances=5)
    assert len(corpus.instances) == 5
    assert corpus.get_size("words") == 16
    for tree in corpus.instances:
        assert (tree.n_vertices, tree.n_leaves, tree.height) == (31, 16, 4)
        assert tree.words.max() < 16
    assert digest(corpus.instances[:1]) != digest(corpus.instances[1:2])


def test_unknown_loader_and_split_are_named() -> None:
    with pytest.raises(ConfigError, match=r"loader=dynbatch\.datasets\.nothing is not a module"):
        load_corpus("dynbatch.datasets.nothing", "train", None)
    with pytest.raises(ConfigError, match="split=dve is not allowed; choose one of train, dev"):
        synthetic("dve")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def load(:", r"\(SyntaxError: invalid syntax \(broken_module\.py, line 1\)\)"),
        ("import missing_library", r"\(ModuleNotFoundError: No module named 'missing_library'\)"),
        ("1 / 0", r"\(ZeroDivisionError: division by zero\)"),
    ],
)
def test_loader_or_model_that_cannot_be_imported_is_one_line(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for key, read in {
        "dataset.loader": find_home,
        "model.model": find_model_class,
    }.items():
        with pytest.raises(ConfigError, match=rf"^{key}=broken_module cannot be imported {reason}"):
            read("broken_module")
    with pytest.raises(ConfigError, match=r"^dataset\.loader=broken_module cannot be imported"):
        load_corpus("broken_module", "train", None)


LEAF = Tree([0], [0], [-1], [-1])  # type: ignore[arg-type]


def test_a_corpus_checks_itself() -> None:
    with pytest.raises(DataError, match="has 0 instances"):
        Corpus("empty", "train", (), {"words": 1}, "", "")
    with pytest.raises(DataError, match=r"corpus odd \(train\) has 0 tags; it needs at least 1"):
        Corpus("odd", "train", (LEAF,), {"words": 1, "tags": 0}, "", "")
    odd = Corpus("odd", "train", (LEAF,), {"words": 7, "tags": 2}, "", "")
    assert (odd.get_size("words"), odd.get_size("tags")) == (7, 2)
    with pytest.raises(DataError, match=r"odd \(train\) has no size classes; choose from words, t"):
        odd.get_size("classes")


@pytest.mark.parametrize("name", sorted({*list_choices("dataset")} - {*list_formats()}))
def test_every_dataset_of_conf_loads_with_its_options(name: str, data_root: Path) -> None:
    """Formats of a user's own files are in test_own_files.py."""
    corpus = load_shipped(name, data_root)
    assert corpus.name == name
    kind = read_mapping(CONF_DIR / "dataset" / f"{name}.yaml")["instance_kind"]
    assert corpus.instance_kind == kind


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


def measures(corpus: Corpus) -> dict[str, NDArray[np.int64]]:
    """Return the lengths of a corpus's instances by measure, as an array each."""
    found: dict[str, list[int]] = {}
    for instance in corpus.instances:
        if isinstance(instance, Chain):
            found.setdefault("words", []).append(instance.n_words)
            letters = np.diff(instance.char_start)
            found.setdefault("letters", []).extend(letters[letters > 0].tolist())
        elif isinstance(instance, SentencePair):
            found.setdefault("source", []).append(len(instance.source))
            found.setdefault("target", []).append(len(instance.target))
        else:
            assert isinstance(instance, ParsedSentence)
            heads = instance.heads.tolist()
            found.setdefault("words", []).append(len(heads))
            # Distances of words from their heads, negative before them, except for the root's.
            distances = [word - head for word, head in enumerate(heads) if head < len(heads)]
            found.setdefault("arcs", []).extend(distances)
    return {name: np.array(values) for name, values in found.items() if values}


@cache
def measures_of(name: str) -> dict[str, NDArray[np.int64]]:
    return measures(generated(name))


# Mean, minimum and maximum in the real parts.
STATED: dict[str, dict[str, tuple[float, int, int]]] = {
    "ptb_synthetic": {"words": (21.90, 2, 78)},
    "ptb_fixed_synthetic": {"words": (64, 64, 64)},
    "wikiner_synthetic": {"words": (23.00, 1, 144), "letters": (8.83, 3, 28)},
    "iwslt15_synthetic": {"source": (20.02, 4, 95), "target": (24.08, 3, 124)},
    "ud_ewt_synthetic": {"words": (12.29, 1, 75)},
    "bilstm_synthetic": {"words": (40, 40, 40)},
}


@pytest.mark.parametrize("name", STATED)
def test_lengths_have_the_mean_and_the_extremes_of_the_corpus(name: str) -> None:
    found = measures_of(name)
    for measure, (mean, shortest, longest) in STATED[name].items():
        values = found[measure]
        assert values.mean() == pytest.approx(mean, rel=0.03)
        assert shortest <= values.min() <= shortest + 1
        assert 0.8 * longest <= values.max() <= 1.05 * longest


@pytest.mark.parametrize("name", ["ptb", "wikiner", "iwslt15", "ud_ewt"])
def test_lengths_are_distributed_as_in_the_real_part(name: str, data_root: Path) -> None:
    real = measures(load_shipped(f"{name}_dev", data_root, "dev"))
    drawn = measures_of(f"{name}_synthetic")
    tenths = np.linspace(0.1, 0.9, 9)
    for measure, values in real.items():
        one, other = np.quantile(values, tenths), np.quantile(drawn[measure], tenths)
        np.testing.assert_allclose(other, one, atol=1)


def test_rare_words_are_spelled_alike_wherever_they_are() -> None:
    corpus = generated("wikiner_synthetic")
    spellings: dict[int, list[int]] = {}
    spelled, n_words = 0, 0
    for chain in corpus.instances:
        starts, letters = chain.char_start.tolist(), chain.characters.tolist()
        for index, word in enumerate(chain.words.tolist()):
            found = letters[starts[index] : starts[index + 1]]
            assert spellings.setdefault(word, found) == found
            spelled += bool(found)
            n_words += 1
            if found:
                assert found[0] == found[-1] == 0
                assert 0 not in found[1:-1]
    assert spelled / n_words == pytest.approx(0.289, abs=0.01)


def test_trees_lean_as_in_the_treebank() -> None:
    arcs = measures_of("ud_ewt_synthetic")["arcs"]
    assert (arcs < 0).mean() == pytest.approx(0.610, abs=0.03)
    assert np.abs(arcs).mean() == pytest.approx(3.13, rel=0.05)


def test_translation_length_correlates_with_source_length() -> None:
    found = measures_of("iwslt15_synthetic")
    correlation = np.corrcoef(found["source"], found["target"])[0, 1]
    assert correlation == pytest.approx(0.944, abs=0.03)


def test_the_next_word_is_the_label() -> None:
    for name in ("ptb_synthetic", "ptb_fixed_synthetic"):
        corpus = generated(name)
        for chain in corpus.instances[:20]:
            assert chain.words[1:].tolist() == chain.labels[:-1].tolist()
    sentences = generated("ptb_synthetic").instances[:20]
    assert all(chain.words[0] == chain.labels[-1] == 0 for chain in sentences)
    assert all((chain.words[1:] > 0).all() for chain in sentences)


def test_lengths_of_xnli_are_those_that_are_assumed_on_average() -> None:
    corpus = generated("xnli_synthetic", "train")
    lengths = np.array([corpus.instances[k].n_words for k in range(4000)])
    assert corpus.synthetic
    # Half are premises, half hypotheses; lengths are limited, and rounding preserves the mean.
    assert lengths.mean() == pytest.approx(np.mean(list(MEANS.values())), rel=0.03)
    assert lengths.min() >= 2
    assert lengths.max() <= LONGEST


def test_words_of_xnli_follow_zipf_and_labels_are_uniform() -> None:
    corpus = generated("xnli_synthetic", "train", n_classes=4)
    some = [corpus.instances[k] for k in range(2000)]
    words, labels = (np.concatenate([getattr(s, w) for s in some]) for w in ("words", "labels"))
    n_words, n_classes = corpus.get_size("words"), corpus.get_size("classes")
    assert (words.min(), labels.min()) == (0, 0)
    assert words.max() < n_words
    assert np.bincount(labels, minlength=n_classes) / len(labels) == pytest.approx(0.25, abs=0.02)
    shares = np.bincount(words, minlength=n_words) / len(words)
    assert shares[0] / shares[1] == pytest.approx(np.log(2) / np.log(1.5), rel=0.2)


def test_all_of_xnli_may_be_of_one_length() -> None:
    corpus = generated("xnli_synthetic", "train", length=128)
    assert {corpus.instances[k].n_words for k in range(20)} == {128}


SHARING: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("sst", "ptb", "iwslt15", "weibo_lattice")),
    *((f"{name}_synthetic", {}) for name in ("sst", "ptb", "iwslt15", "lattice")),
    *((name, {"steps": 4}) for name in ("ptb", "ptb_synthetic")),
]


@pytest.mark.parametrize(("name", "options"), SHARING)
def test_ids_may_share_rows_as_released(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    if name in EXCERPTS:
        write_corpus(name, tmp_path)
    plain, shared = (load(name, tmp_path, vocab_modulo=n, **options) for n in (0, 3))
    assert {rows for size, rows in shared.sizes.items() if size != "classes"} == {3}
    ids = ["words", "tokens", "source", "target", *["labels"] * name.startswith("ptb")]
    for one, other in zip(plain.instances[:3], shared.instances[:3], strict=True):
        for field in (field for field in ids if hasattr(one, field)):
            expected, found = getattr(one, field), getattr(other, field)
            assert found.tolist() == np.where(expected < 0, -1, expected % 3).tolist()
