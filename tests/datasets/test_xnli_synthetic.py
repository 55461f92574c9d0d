"""Sentences that stand in for XNLI's: as long on average as assumed, fixed by their seed."""

from __future__ import annotations

import numpy as np
import pytest

from datasets.xnli_synthetic import LONGEST, MEANS
from harness.contracts.corpus import Corpus, inputs_sha256, load_corpus
from harness.errors import ConfigError
from tests.support.corpora import options_of


def load(split: str = "train", **options: int) -> Corpus:
    return load_corpus(
        "datasets.xnli_synthetic", split, None, **options_of("xnli_synthetic") | options
    )


def test_lengths_are_those_that_are_assumed_on_average() -> None:
    corpus = load()
    lengths = np.array([corpus.instances[k].n_words for k in range(4000)])
    assert corpus.synthetic
    # Half premises, half hypotheses; those over the longest are cut, and rounding keeps the mean.
    assert lengths.mean() == pytest.approx(np.mean(list(MEANS.values())), rel=0.03)
    assert lengths.min() >= 2
    assert lengths.max() <= LONGEST


def test_words_follow_zipf_and_labels_are_uniform() -> None:
    corpus = load(n_classes=4)
    some = [corpus.instances[k] for k in range(2000)]
    words, labels = (np.concatenate([getattr(s, w) for s in some]) for w in ("words", "labels"))
    n_words, n_classes = corpus.size("words"), corpus.size("classes")
    assert (words.min(), labels.min()) == (0, 0)
    assert words.max() < n_words
    assert np.bincount(labels, minlength=n_classes) / len(labels) == pytest.approx(0.25, abs=0.02)
    shares = np.bincount(words, minlength=n_words) / len(words)
    assert shares[0] / shares[1] == pytest.approx(np.log(2) / np.log(1.5), rel=0.2)


def test_an_instance_depends_on_seed_split_and_place_alone() -> None:
    one = load().instances[7]
    assert inputs_sha256([[one]]) == inputs_sha256([[load().instances[7]]])
    others = [load(seed=1).instances[7], load("dev").instances[7], load().instances[8]]
    assert all(inputs_sha256([[one]]) != inputs_sha256([[other]]) for other in others)


def test_all_may_be_of_one_length() -> None:
    assert {load(length=128).instances[k].n_words for k in range(20)} == {128}


@pytest.mark.parametrize("wrong", [{"length": -1}, {"n_classes": 0}])
def test_wrong_options_are_told(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is not allowed; give at least 0 and 1"):
        load(**wrong)
