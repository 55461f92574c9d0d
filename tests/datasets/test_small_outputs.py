"""Penn Treebank's words modulo a number: the same sentences, a language model's small output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.contracts.corpus import Corpus, load_corpus
from harness.errors import ConfigError

TEXT = " the cat sat \n a dog and the cat ran <unk> \n the end \n"


def corpus_of(loader: str, root: Path, **options: int) -> Corpus:
    if loader == "datasets.ptb_synthetic":
        return load_corpus(loader, "train", None, **options)
    (root / "ptb").mkdir(exist_ok=True)
    (root / "ptb" / "train.txt").write_text(TEXT)
    return load_corpus(loader, "train", root, sha256=None, **options)


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize("loader", ["datasets.ptb", "datasets.ptb_synthetic"])
def test_words_are_the_same_modulo_the_number(loader: str, steps: int, tmp_path: Path) -> None:
    plain = corpus_of(loader, tmp_path, steps=steps)
    small = corpus_of(loader, tmp_path, steps=steps, vocab_modulo=3)
    assert (plain.sizes["words"], small.sizes["words"]) == (10_000, 3)
    for one, other in zip(plain.instances[:3], small.instances[:3], strict=True):
        np.testing.assert_array_equal(one.words % 3, other.words)
        np.testing.assert_array_equal(one.labels % 3, other.labels)
        assert one.words.max() > 2, "the number changes something"


@pytest.mark.parametrize("loader", ["datasets.ptb", "datasets.ptb_synthetic"])
def test_a_number_below_0_is_refused(loader: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocab_modulo=-1 is not allowed"):
        corpus_of(loader, tmp_path, vocab_modulo=-1)
