"""Generated sentences: the length statistics of the real parts, fixed by a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.contracts.corpus import Corpus, inputs_sha256, load_corpus
from harness.errors import ConfigError
from harness.values.instances import Chain, SentencePair
from harness.values.parsed import ParsedSentence
from tests.support.corpora import options_of

NAMES = (
    *("ptb_synthetic", "ptb_fixed_synthetic", "wikiner_synthetic", "iwslt15_synthetic"),
    *("ud_ewt_synthetic", "bilstm_synthetic"),
)
LOADERS = {"ptb_fixed_synthetic": "ptb_synthetic", "ptb_fixed_dev": "ptb"}


def generated(name: str, split: str = "dev", root: Path | None = None, **options: Any) -> Corpus:
    loader = LOADERS.get(name, name.removesuffix("_dev"))
    return load_corpus(f"datasets.{loader}", split, root, **{**options_of(name), **options})


def measures(corpus: Corpus) -> dict[str, NDArray[np.int64]]:
    """What the lengths of its instances are, one array of numbers for each measure."""
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
            found.setdefault("words", []).append(len(instance.heads))
            found.setdefault("arcs", []).extend(arc_lengths(instance))
    return {name: np.array(values) for name, values in found.items() if values}


def arc_lengths(sentence: ParsedSentence) -> list[int]:
    """How many words behind its head each word is; below 0: before it. The root's are left out."""
    n = len(sentence.heads)
    return [word - head for word, head in enumerate(sentence.heads.tolist()) if head < n]


# Measured on the real parts: mean, minimum and maximum.
TOLD: dict[str, dict[str, tuple[float, int, int]]] = {
    "ptb_synthetic": {"words": (21.90, 2, 78)},
    "ptb_fixed_synthetic": {"words": (64, 64, 64)},
    "wikiner_synthetic": {"words": (23.00, 1, 144), "letters": (8.83, 3, 28)},
    "iwslt15_synthetic": {"source": (20.02, 4, 95), "target": (24.08, 3, 124)},
    "ud_ewt_synthetic": {"words": (12.29, 1, 75)},
    "bilstm_synthetic": {"words": (40, 40, 40)},
}


@pytest.mark.parametrize("name", NAMES)
def test_lengths_have_the_mean_and_the_extremes_of_the_corpus(name: str) -> None:
    found = measures(generated(name))
    for measure, (mean, shortest, longest) in TOLD[name].items():
        values = found[measure]
        assert values.mean() == pytest.approx(mean, rel=0.03)
        assert shortest <= values.min() <= shortest + 1
        assert 0.8 * longest <= values.max() <= 1.05 * longest


REAL = {
    "ptb_synthetic": "ptb_dev",
    "wikiner_synthetic": "wikiner_dev",
    "iwslt15_synthetic": "iwslt15_dev",
    "ud_ewt_synthetic": "ud_ewt_dev",
}


@pytest.mark.parametrize("name", REAL)
def test_lengths_are_distributed_as_in_the_real_part(name: str, data_root: Path) -> None:
    if not (data_root / REAL[name].removesuffix("_dev")).is_dir():
        pytest.skip(f"{data_root} has no {REAL[name].removesuffix('_dev')}/")
    real = measures(generated(REAL[name], root=data_root))
    drawn = measures(generated(name))
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
    arcs = measures(generated("ud_ewt_synthetic", "train"))["arcs"]
    assert (arcs < 0).mean() == pytest.approx(0.610, abs=0.03)
    assert np.abs(arcs).mean() == pytest.approx(3.13, rel=0.05)


def test_translations_are_about_as_long_as_what_they_translate() -> None:
    found = measures(generated("iwslt15_synthetic"))
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


def ids_below_sizes(corpus: Corpus) -> None:
    named = {"classes": "labels", "tags": "tags", "relations": "relations"}
    named |= {"source_words": "source", "target_words": "target"}
    for size, rows in corpus.sizes.items():
        arrays = [getattr(one, named.get(size, size)) for one in corpus.instances[:300]]
        joined = np.concatenate(arrays)
        assert joined.max() < rows
        assert joined.min() >= 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_ids_are_below_the_sizes(name: str, split: str) -> None:
    ids_below_sizes(generated(name, split))
    if name == "iwslt15_synthetic":
        corpus = generated(name, split, vocab_modulo=256)
        assert corpus.sizes == {"source_words": 256, "target_words": 256}
        ids_below_sizes(corpus)


@pytest.mark.parametrize("name", NAMES)
def test_they_depend_on_seed_split_and_index_alone(name: str) -> None:
    def inputs(corpus: Corpus) -> str:
        return inputs_sha256([corpus.instances[:20]])

    one = generated(name)
    assert inputs(one) == inputs(generated(name))
    assert inputs(one) != inputs(generated(name, seed=1))
    assert inputs(one) != inputs(generated(name, "train"))
    assert one.sha256 == generated(name).sha256 != generated(name, seed=1).sha256
    alone = generated(name).instances[7]
    assert inputs_sha256([[alone]]) == inputs_sha256([[one.instances[7]]])


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("ptb_synthetic", "e5d231e8e2ba6f4c"),
        ("ptb_fixed_synthetic", "368e4a194dfc1a91"),
        ("wikiner_synthetic", "d24c3e5b1e985e62"),
        ("iwslt15_synthetic", "84c3e9bd95164c74"),
        ("ud_ewt_synthetic", "7bcaefa65845121a"),
        ("bilstm_synthetic", "4b9b6117c76db8d9"),
    ],
)
def test_generated_inputs_are_pinned(name: str, digest: str) -> None:
    # The same on every machine and NumPy release; a change of the generators changes records.
    corpus = generated(name, "train")
    assert inputs_sha256([corpus.instances[:64]])[:16] == digest


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ptb_synthetic", {"steps": -1}, "steps=-1 is not allowed"),
        ("iwslt15_synthetic", {"vocab_modulo": -1}, "vocab_modulo=-1 is not allowed"),
        ("bilstm_synthetic", {"length": 0}, "length=0 is not allowed; give at least 1"),
        ("bilstm_synthetic", {"n_classes": 0}, "n_classes=0 is not allowed"),
        ("wikiner_synthetic", {"seed": -1}, "seed=-1 is not allowed"),
    ],
)
def test_wrong_options_are_named(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generated(name, **options).instances[0]
