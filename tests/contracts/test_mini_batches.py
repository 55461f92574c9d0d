"""Mini-batches: drawn in order or by a seed, of fixed size, and hashed."""

from __future__ import annotations

import pytest

from harness.contracts.corpus import Corpus, inputs_sha256, mini_batches
from harness.errors import ConfigError
from harness.values.instances import Tree
from tests.support.corpora import complete


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
        (1, 1, "sorted", "order=sorted is unknown; choose one of shuffled, file, length"),
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
