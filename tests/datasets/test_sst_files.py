"""The treebank's files: checksums, missing ones, and the statistics of the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.reading.lazy import LazyInstances
from datasets.shape import tree_shapes
from harness.contracts.corpus import inputs_sha256, load_corpus
from harness.errors import DataError
from tests.support.corpora import options_of, sha256, write_sst


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
    shapes = tree_shapes(corpus.instances, corpus.size("classes"))
    assert shapes.n_instances == 8550 - 6
    assert shapes.n_leaves == 163_599 - 36
    assert shapes.n_vertices - shapes.n_leaves == 155_049 - 30
    assert shapes.n_words_used == corpus.size("words") - 1 == 18_283 - 3
    assert (shapes.leaves_max, shapes.height_max) == (52, 29)
    assert shapes.leaves_mean == pytest.approx(19.13, abs=0.02)
    assert shapes.height_mean == pytest.approx(9.8, abs=0.05)


@pytest.mark.parametrize(("split", "n_instances"), [("dev", 1101), ("test", 2210)])
def test_other_splits_of_the_real_treebank(data_root: Path, split: str, n_instances: int) -> None:
    corpus = load_corpus("datasets.sst", split, data_root, **options_of("sst"))
    words = np.concatenate([tree.words for tree in corpus.instances])
    assert len(corpus.instances) == n_instances
    assert corpus.size("words") == 18_281
    assert words.max() == 18_280  # the unknown word


def test_lazy_and_eager_reading_agree(data_root: Path) -> None:
    lazy = load_corpus("datasets.sst", "dev", data_root, **options_of("sst"))
    eager = load_corpus("datasets.sst", "dev", data_root)
    assert isinstance(lazy.instances, LazyInstances)
    assert isinstance(eager.instances, tuple)
    assert inputs_sha256([lazy.instances]) == inputs_sha256([eager.instances])
